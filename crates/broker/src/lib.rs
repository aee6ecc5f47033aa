//! The seam between those who send and read rows and the queue that keeps them, with its conformance suite.

//! Cases: ownership.

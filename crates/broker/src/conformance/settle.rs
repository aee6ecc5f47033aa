//! Cases: settle.

//! Cases: close.

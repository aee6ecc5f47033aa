//! Cases: limits.

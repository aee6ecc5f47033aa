//! Cases: history.

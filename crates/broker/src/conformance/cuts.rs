//! Cases: cuts.

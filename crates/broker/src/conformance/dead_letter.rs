//! Cases: dead_letter.

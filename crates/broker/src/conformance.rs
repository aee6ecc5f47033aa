//! The suite that every broker passes.

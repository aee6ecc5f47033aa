//! Properties of the crate as others use it: whatever the bytes, nothing panics, nothing is lost, and what is
//! accepted is what was sent.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod properties;

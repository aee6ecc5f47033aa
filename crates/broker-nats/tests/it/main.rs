//! The queue on real message servers.

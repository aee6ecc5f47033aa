//! The server against real clients and a real engine.

mod protocol;

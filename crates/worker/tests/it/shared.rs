//! A queue that many processes read, in memory, and processes that come, go, freeze and die.

mod busy;
mod claims;
mod model;
mod queue;
mod running;
mod troubles;
mod world;

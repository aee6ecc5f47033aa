//! The whole program, as an operator runs it: the real binary, the real engine, real signals.

mod boot;
mod cluster;
mod config;
mod crash;
mod dev;
mod dlq;
mod http;
mod mq;
mod nats;
mod program;
mod provision;
mod refusals;
mod roles;
mod shared;
mod soak;
mod status;
mod stop;
mod stream;

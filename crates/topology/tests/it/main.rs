//! The generated objects, the shipped files, and every rule that judges what is on the servers.

mod answers;
mod kit;
mod manifests;
mod permissions;
mod rules;
mod rules_of_durables;
mod rules_of_streams;
mod runbook;
mod shipped;

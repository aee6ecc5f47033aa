//! The conformance suite, proved on the broker in memory and on broken ones.

// Said again, so that the lints for tests hold in helpers too.
#[cfg(test)]
mod broken;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod memory;

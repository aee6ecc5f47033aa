//! The embedded queue as a whole, on a real disk and on one that fails.

// Said again, so that the lints for tests hold in helpers too.
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod log;
#[cfg(test)]
mod mortal;

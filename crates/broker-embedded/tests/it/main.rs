//! The embedded queue as a whole, on a real disk and on one that fails.

// Said again, so that the lints for tests hold in helpers too.
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod faulty;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod log;
#[cfg(test)]
mod model;
#[cfg(test)]
mod mortal;

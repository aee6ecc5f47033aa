//! The calls against a real message server, as its operator and as the restricted user that the product is.

// Said again, so that the lints for tests hold in helpers too.
#[cfg(test)]
mod calls;
#[cfg(test)]
mod cases;
mod cluster;
#[cfg(test)]
mod consumers;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod link;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod secured;

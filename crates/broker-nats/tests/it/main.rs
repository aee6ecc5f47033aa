//! The queue on real message servers, as the restricted user that the product is.

// Said again, so that the lints for tests hold in helpers too.
#[cfg(test)]
mod bucket;
#[cfg(test)]
mod cases_logs;
#[cfg(test)]
mod cases_permissions;
#[cfg(test)]
mod cases_publish;
#[cfg(test)]
mod cases_units;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod elections;
#[cfg(test)]
mod extras;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod history;
#[cfg(test)]
mod letters;
#[cfg(test)]
mod lossy;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod publish;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod signs;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod suites;
#[cfg(test)]
mod three;
#[cfg(test)]
mod topology;
#[cfg(test)]
mod troubles;
#[cfg(test)]
mod units;
#[cfg(test)]
mod unreadable;
#[cfg(test)]
mod workers;

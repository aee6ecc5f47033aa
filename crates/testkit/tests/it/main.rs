//! The house rules that no lint knows, as tests.

// Said again, so that the lints for tests hold in helpers too.
#[cfg(test)]
mod tidy;

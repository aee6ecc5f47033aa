//! Long runs of the real programs under load, with kills, outages, full disks and refused rows; afterwards every row
//! is accounted for. The short form runs with the other tests; `make soak` runs the long one and prints the reports.
#![expect(clippy::expect_used, reason = "a harness has nothing to do about a machine that fails it")]
#![expect(clippy::print_stdout, reason = "reports are what these runs are for")]

mod audit;
mod full_disk;
mod gateway;
mod kills;
mod load;
mod outage;
mod refusals;

/// Kills in the short form.
const KILLS_SHORT: u32 = 10;

/// These runs load the whole machine and look at the clock: one at a time.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How many kills were asked for, and whether this is the long form.
#[expect(clippy::disallowed_methods, reason = "the length of a test run is no configuration of the program")]
fn kills() -> (u32, bool) {
    let asked =
        std::env::var("WAVEHOUSE_SOAK_KILLS").ok().map(|text| text.parse().expect("a number of kills"));
    (asked.unwrap_or(KILLS_SHORT), asked.is_some())
}

/// Random numbers of a run; the seed is printed, so that a run can be looked at again.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = getrandom::u64().expect("random bytes") | 1;
        println!("seed {seed}");
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

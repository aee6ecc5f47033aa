//! Whether the history keeps rows for as long as tenants want to resume from it. It belongs to the operator, so a tenant
//! that wants more is only told of: once, and again when what it wants or the history's age has changed for the worse.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use wavehouse_core::TenantId;

use crate::shared::lock;

/// Tenants whose windows are kept.
const TENANTS_MAX: usize = 100_000;

/// What is wanted, what there is, and what was told.
#[derive(Default)]
pub(crate) struct Gaps(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// How long the history keeps rows; none before it was seen, or where it has no bound.
    age: Option<Duration>,
    windows: HashMap<TenantId, Window>,
}

struct Window {
    wanted: Duration,
    /// What was wanted and what there was when it was told of last.
    told: Option<(Duration, Duration)>,
}

impl Window {
    /// Whether it is to be told of now.
    fn is_news(&mut self, age: Duration) -> bool {
        let told = self.told.is_some_and(|(wanted, then)| wanted == self.wanted && then <= age);
        if self.wanted <= age || told {
            return false;
        }
        self.told = Some((self.wanted, age));
        true
    }
}

impl Gaps {
    /// A tenant wants to resume from rows that are so old.
    pub(crate) fn wanted(&self, tenant: &TenantId, wanted: Duration) {
        let mut known = lock(&self.0);
        let age = known.age;
        if known.windows.len() >= TENANTS_MAX && !known.windows.contains_key(tenant) {
            return;
        }
        let window = known.windows.entry(tenant.clone()).or_insert(Window { wanted, told: None });
        window.wanted = wanted;
        if let Some(age) = age.filter(|age| window.is_news(*age)) {
            tell(tenant, wanted, age);
        }
    }

    /// The history keeps rows for so long.
    pub(crate) fn there_is(&self, age: Option<Duration>) {
        let mut known = lock(&self.0);
        known.age = age;
        let Some(age) = age else { return };
        for (tenant, window) in known.windows.iter_mut().filter(|(_, window)| window.wanted > age) {
            if window.is_news(age) {
                tell(tenant, window.wanted, age);
            }
        }
    }
}

fn tell(tenant: &TenantId, wanted: Duration, age: Duration) {
    tracing::warn!(
        %tenant,
        gap_window = ?wanted,
        history_max_age = ?age,
        "live streams cannot resume from as far back as they may want: the history keeps rows for less; raise its max_age"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_61_a_window_is_told_of_once_and_again_when_it_gets_worse() {
        let s = Duration::from_secs;
        let mut window = Window { wanted: s(60), told: None };
        for (wanted_s, age_s, news) in [
            (60, 90, false),
            (60, 60, false),
            (60, 30, true),
            (60, 30, false),
            (60, 40, false),
            (60, 20, true),
            (90, 20, true),
            (90, 20, false),
            (10, 20, false),
            (90, 20, false),
        ] {
            window.wanted = s(wanted_s);
            assert_eq!(window.is_news(s(age_s)), news, "{wanted_s} {age_s}");
        }
    }
}

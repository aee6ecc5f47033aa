//! Dead letters, beside the log: one file a tenant, so that letters outlive the log files that their rows came in.

mod record;
mod shelf;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use prometheus_client::metrics::counter::Counter;
use wavehouse_broker::{DeadLetter, LetterCounts, LetterCursor, LetterError, LetterFilter, LetterPage};
use wavehouse_core::{Position, TableRef, TenantId};

use self::shelf::Shelf;
use crate::files::Files;
use crate::intake::lock;
use crate::shared::Shared;

/// Where the letters are, below the data directory.
const LETTERS_DIR: &str = "letters";
/// A tenant's letters may take this part of its budget.
const BUDGET_PART: u64 = 10;
/// And never more than this.
const LETTER_BYTES_MAX: u64 = 1 << 30;

/// The letters of all tenants. Every call blocks on the disk.
pub(crate) struct Letters {
    shared: Arc<Shared>,
    closed: AtomicBool,
    shelves: Mutex<HashMap<TenantId, Arc<Mutex<Shelf>>>>,
}

/// What the shelves need of their surroundings.
#[derive(Clone)]
struct Place {
    files: Arc<dyn Files>,
    name: String,
    damage: Counter,
}

impl Letters {
    /// Opens nothing yet: a tenant's file is read when it is first asked for.
    pub(crate) fn new(shared: Arc<Shared>) -> std::io::Result<Self> {
        shared.files.create_dir(LETTERS_DIR)?;
        // What a killed process left only in memory counts from here on.
        shared.files.sync_dir(LETTERS_DIR)?;
        Ok(Self { shared, closed: AtomicBool::new(false), shelves: Mutex::default() })
    }

    /// Later calls fail.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn check_open(&self) -> Result<(), LetterError> {
        if self.closed.load(Ordering::Acquire) { Err(LetterError::Closed) } else { Ok(()) }
    }

    /// The shelf of a tenant; none when it has no letters and `make` is not asked for.
    fn shelf(&self, tenant: &TenantId, make: Make) -> Result<Option<Arc<Mutex<Shelf>>>, LetterError> {
        let mut shelves = lock(&self.shelves);
        if let Some(shelf) = shelves.get(tenant) {
            return Ok(Some(Arc::clone(shelf)));
        }
        let place = Place {
            files: Arc::clone(&self.shared.files),
            name: format!("{tenant}.wh"),
            damage: self.shared.metrics.damaged_records.clone(),
        };
        let unreadable = |error: std::io::Error| LetterError::Unavailable { reason: error.to_string() };
        let Some(shelf) = Shelf::open(place, make).map_err(unreadable)? else { return Ok(None) };
        let shelf = Arc::new(Mutex::new(shelf));
        shelves.insert(tenant.clone(), Arc::clone(&shelf));
        Ok(Some(shelf))
    }

    /// See [`Broker::bury`](wavehouse_broker::Broker::bury).
    pub(crate) fn bury(&self, letters: Vec<DeadLetter>) -> Result<(), LetterError> {
        self.check_open()?;
        let mut by_tenant: BTreeMap<TenantId, Vec<DeadLetter>> = BTreeMap::new();
        for letter in letters {
            by_tenant.entry(letter.table.tenant.clone()).or_default().push(letter);
        }
        for (tenant, letters) in by_tenant {
            let Some(shelf) = self.shelf(&tenant, Make::IfMissing)? else { continue };
            let budget = self.shared.tenants.limits(&tenant).unwritten_bytes_max / BUDGET_PART;
            let dropped = lock(&shelf).bury(&letters, budget.min(LETTER_BYTES_MAX))?;
            if dropped > 0 {
                self.shared.metrics.letters_dropped.inc_by(dropped);
                tracing::warn!(%tenant, dropped, "the oldest dead letters were given up for newer ones");
            }
        }
        Ok(())
    }

    /// See [`Broker::letter_counts`](wavehouse_broker::Broker::letter_counts).
    pub(crate) fn counts(&self, tenant: &TenantId) -> Result<LetterCounts, LetterError> {
        self.check_open()?;
        let shelf = self.shelf(tenant, Make::Never)?;
        Ok(shelf.map(|shelf| lock(&shelf).counts()).unwrap_or_default())
    }

    /// See [`Broker::letters`](wavehouse_broker::Broker::letters).
    pub(crate) fn page(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> Result<LetterPage, LetterError> {
        self.check_open()?;
        let shelf = self.shelf(&filter.tenant, Make::Never)?;
        shelf.map_or_else(|| Ok(LetterPage::default()), |shelf| lock(&shelf).page(filter, after, limit))
    }

    /// See [`Broker::drop_letters`](wavehouse_broker::Broker::drop_letters).
    pub(crate) fn drop_letters(&self, table: &TableRef, positions: &[Position]) -> Result<u64, LetterError> {
        self.check_open()?;
        let shelf = self.shelf(&table.tenant, Make::Never)?;
        shelf.map_or(Ok(0), |shelf| lock(&shelf).drop_letters(&table.table, positions))
    }
}

/// Whether a file that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Make {
    /// Yes.
    IfMissing,
    /// No.
    Never,
}

//! The seam between those who send and read rows and the queue that keeps them.
//!
//! [`Broker`] states what every queue promises; each sentence of its documentation has a case in the conformance suite
//! (feature `conformance`), which every broker runs in its own tests. Those who use a broker know no backend, and a
//! backend knows nothing of HTTP or ClickHouse.

#[cfg(feature = "conformance")]
pub mod conformance;

mod contract;
mod cut;
mod errors;
mod history;
mod lease;
mod letter;
mod sharing;
mod unit;

pub use contract::{
    Broker, BrokerHealth, Receipt, SharedBroker, Submitted, SweepReport, TableDepth, TenantLimits,
};
pub use cut::{Cut, CutError, InsertToken, SPLITS_MAX};
pub use errors::{CloseError, HistoryError, LetterError, OpenUnitError, PublishError, Stored, UnitLost};
pub use history::{HistoryEvent, HistoryFilter, HistoryStart, HistoryStream};
pub use lease::{LEASE_BYTES_MAX, LeaseBucket, LeaseEntry, LeaseError, Revision};
pub use letter::{DeadLetter, LetterCounts, LetterCursor, LetterFilter, LetterPage, REASON_BYTES_MAX};
pub use sharing::{Answer, SharingError, TakeOver, UnitSharing};
pub use unit::{
    Deliveries, Delivery, OpenUnit, RowBudget, Settle, Settlement, StoredBlock, Ticket, UnitControl,
};

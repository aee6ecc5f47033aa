//! The one-process broker: an append-only log on local disk with group commit.
//!
//! One log holds the rows of all tenants, in files that are laid out and zeroed before they are written, so that a commit
//! changes no metadata and a full disk shows before rows are taken. One thread writes; whoever waits when it is free goes
//! with the next sync. `docs/adr/0001-embedded-log.md` says why it is a log of our own.
//!
//! ```text
//!   submit ─► intake ─► writer ─► active file ─(full)─► sealed files ─► history ─► recycled
//!                          ▲                              ▲                │
//!   record_cut, settles ───┘          unit, history ── read                └─ keeper: spare files, sweep, move
//! ```

mod answers;
mod broker;
mod checkpoint;
mod codec;
mod commit;
mod cursor;
mod depths;
pub mod files;
mod footer;
mod format;
mod gaps;
mod herald;
mod history;
mod intake;
mod keeper;
mod letters;
mod merge;
mod metrics;
mod mover;
mod opening;
mod options;
mod parts;
mod place;
mod read;
mod record;
mod recover;
mod replay;
mod scan;
mod session;
mod settled;
mod shared;
mod spare;
mod state;
mod tenant;
mod unit;
mod writer;

pub use broker::EmbeddedBroker;
pub use metrics::{Metrics, RefusedLabel};
pub use options::{ACK_WAIT_DEFAULT, BLOCK_BYTES_MAX, OpenError, Options};

//! What follows from how a flush ended: acks, rests, outages.

use std::time::Duration;

use tokio::time::Instant;
use wavehouse_clickhouse::{Class, ClickHouseError, WriteError};
use wavehouse_core::{FaultKind, chain};

use super::Core;
use crate::flush::{End, REFUSALS_IN_A_ROW_MAX, Report};
use crate::outage::Outage;
use crate::table::Held;
use crate::worker::WorkerFault;

pub(super) fn reported(core: &mut Core, report: Report, now: Instant) {
    let index = report.index;
    if core.tables.get(index).is_none_or(|table| table.unit != report.unit) {
        // Its unit is done with.
        return;
    }
    let target = core.tables[index].target;
    let held = core.tables[index].flight.take().unwrap_or_default();
    core.targets[target].turns.finish();
    core.tables[index].streak = report.streak;
    if report.accepted {
        core.targets[target].took = Some(now);
    }
    let answered = answered(&report);
    match report.end {
        End::Stored => core.stored(index, held, now),
        _ if core.is_fenced(report.unit) => core.hand_back(index, held),
        _ => core.interrupted(index, held, report, now),
    }
    // Only now: until its batch is settled or put aside, the table must not begin another.
    if answered {
        core.comes_up(target, now);
    }
    if core.targets[target].down.as_ref().is_some_and(|down| down.probed_by(index)) {
        // The probe ended without a word about the server.
        core.end_probe(target, now);
    }
    core.wake(index, now);
    core.serve(target, now);
}

/// Whether the server is there and works, whatever it thinks of the rows.
fn answered(report: &Report) -> bool {
    match &report.end {
        End::Stored | End::Slow | End::Letter(_) => true,
        End::Failed(error) => report.accepted || error.class() == Class::Rejected || table_scoped(error),
        End::Cut(_) | End::Fenced => report.accepted,
    }
}

/// Whether a failure speaks of its table alone: by its code, because it is about what was asked, or because the server
/// took rows of another table meanwhile.
fn of_the_table(error: &WriteError, began: Instant, took: Option<Instant>) -> bool {
    table_scoped(error) || error.class() == Class::Rejected || took.is_some_and(|took| took >= began)
}

fn table_scoped(error: &WriteError) -> bool {
    error.clickhouse().is_some_and(ClickHouseError::table_scoped)
}

impl Core {
    fn stored(&mut self, index: usize, held: Vec<Held>, now: Instant) {
        self.lets_go(index, &held);
        for held in held {
            held.delivery.ack();
        }
        self.give_up_permit(index, now);
        if self.tables[index].streak >= REFUSALS_IN_A_ROW_MAX {
            self.slow_down(index, now);
            self.shut(index, now);
            return;
        }
        let table = &mut self.tables[index];
        if table.trouble.take().is_some() && std::mem::take(&mut table.told) {
            tracing::info!(table = %table.name, "rows of table are written again");
            self.metrics.slowed(&table.name, 0);
        }
    }

    /// Another process has the unit; what could not be stored is its.
    fn hand_back(&mut self, index: usize, held: Vec<Held>) {
        self.lets_go(index, &held);
        for held in held {
            held.delivery.retry(Duration::ZERO);
        }
    }

    fn interrupted(&mut self, index: usize, held: Vec<Held>, report: Report, now: Instant) {
        let Report { unit: report_unit, parts, token, end, began, .. } = report;
        let table = &mut self.tables[index];
        table.set_pending(&held, parts, token, now);
        for block in &held {
            table.gate.gave_back(block.delivery.sequence());
        }
        // Shut, which pauses, before the batch goes back.
        self.shut(index, now);
        self.lets_go(index, &held);
        for block in held {
            block.delivery.retry(Duration::ZERO);
        }
        let name = self.tables[index].name.clone();
        match end {
            // A unit that is fenced is not brought to this.
            End::Stored | End::Fenced => {}
            End::Slow => {
                self.metrics.retried(&name, "refusals");
                self.slow_down(index, now);
            }
            End::Failed(error) => {
                self.metrics.retried(&name, error.class().as_str());
                let took = self.targets[self.tables[index].target].took;
                if of_the_table(&error, began, took) {
                    self.rests(index, chain(&error), now);
                } else {
                    self.rests_quietly(index, chain(&error), now);
                    self.goes_down(index, chain(&error), now);
                }
            }
            End::Cut(error) => {
                self.metrics.retried(&name, "queue");
                self.rests(index, chain(&error), now);
                if error.fault() == FaultKind::Stop {
                    if self.sharing.is_some() {
                        self.fence(report_unit, Some(chain(&error)), now);
                    } else {
                        self.fault = Some(WorkerFault::CutLost(error));
                    }
                }
            }
            End::Letter(error) => {
                self.metrics.retried(&name, "dead_letters");
                self.rests(index, chain(&error), now);
            }
        }
    }

    /// A table fails while its server works.
    fn rests(&mut self, index: usize, reason: String, now: Instant) {
        let table = &mut self.tables[index];
        if !std::mem::replace(&mut table.told, true) {
            tracing::warn!(table = %table.name, error = %reason, "rows of table cannot be written, they wait in the queue");
        }
        self.rests_quietly(index, reason, now);
    }

    fn rests_quietly(&mut self, index: usize, reason: String, now: Instant) {
        let random = self.jitter.next();
        let table = &mut self.tables[index];
        table.trouble = Some(Outage::failed(table.trouble.take(), now, random, reason));
    }

    fn slow_down(&mut self, index: usize, now: Instant) {
        let table = &mut self.tables[index];
        if !std::mem::replace(&mut table.told, true) {
            let refused = table.streak;
            tracing::warn!(table = %table.name, refused, "row after row is refused, table is tried only now and then");
        }
        self.metrics.slowed(&table.name, 1);
        self.rests_quietly(index, "row after row is refused".to_owned(), now);
    }
}

//! Stopping: take nothing new, write what is in hand, give back the rest.

use tokio::time::Instant;

use super::{Event, Unit};
use crate::worker::WorkerFault;

impl Unit {
    /// Halts delivery, writes what is in hand for as long as the options allow, hands back what is left, and gives the
    /// unit up.
    pub(super) async fn drain(mut self) -> Result<(), WorkerFault> {
        let control = std::sync::Arc::clone(&self.context.control);
        control.halt();
        self.options.linger = std::time::Duration::ZERO;
        self.options.insert_spacing = std::time::Duration::ZERO;
        let outcome = tokio::time::timeout(self.options.stop_flush, self.write_what_is_in_hand()).await;
        let cut_off = self.flushes.len();
        if outcome.is_err() {
            tracing::warn!(
                inserts = cut_off,
                "inserts were cut off by the stop; their batches come back as they were"
            );
        }
        // An insert that is cut off may still land; its cut is recorded, so it comes back as the same batch.
        self.flushes.shutdown().await;
        self.tables.clear();
        control.release().await;
        outcome.unwrap_or(Ok(()))
    }

    async fn write_what_is_in_hand(&mut self) -> Result<(), WorkerFault> {
        let mut delivering = true;
        for index in 0..self.tables.len() {
            self.reschedule(index);
        }
        loop {
            let now = Instant::now();
            // A ClickHouse that is away is not waited for.
            self.targets.values_mut().for_each(|target| {
                if target.away_until(now).is_some() {
                    target.take_all();
                }
            });
            self.start_ready(now);
            if !delivering && self.flushes.is_empty() {
                return Ok(());
            }
            let event = tokio::select! {
                biased;
                Some(joined) = self.flushes.join_next() => {
                    let (index, flushed) = joined.map_err(|error| WorkerFault::Died(error.to_string()))?;
                    Event::Flushed(index, Box::new(flushed))
                }
                delivery = self.deliveries.next(), if delivering => match delivery {
                    Ok(Some(delivery)) => Event::Delivered(delivery),
                    Ok(None) | Err(_) => Event::Ended,
                },
            };
            match event {
                Event::Flushed(index, flushed) => self.flushed(index, *flushed)?,
                Event::Delivered(delivery) => self.delivered(delivery),
                Event::Ended => delivering = false,
                Event::Stop | Event::Time => {}
            }
        }
    }
}

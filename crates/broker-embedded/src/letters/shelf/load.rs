//! Reading a shelf's index from its file.

use std::io;
use std::sync::Arc;

use super::Shelf;
use crate::letters::record::read;
use crate::letters::window::Window;

impl Shelf {
    /// Reads the index from the file. What is torn at its end was never acknowledged and is cut off.
    pub(super) fn load(&mut self, file_bytes: u64) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        let mut window = Window::new(&*file, file_bytes);
        let mut at = 0;
        file.sync()?;
        while at < file_bytes {
            let record = window.record(at)?;
            if let Some((record, (letter, kept))) =
                record.and_then(|record| Some((record.len(), read(&self.tenant, record)?)))
            {
                if kept {
                    self.note(&letter, at, record);
                }
                at += record as u64;
                self.end = at;
                continue;
            }
            let mut next = window.next_magic(at + 1)?;
            while let Some(place) = next
                && window.record(place)?.and_then(|record| read(&self.tenant, record)).is_none()
            {
                next = window.next_magic(place + 1)?;
            }
            let Some(next) = next else { break };
            tracing::error!(
                file = self.place.name,
                at,
                next,
                "a file of dead letters is damaged; it is kept"
            );
            self.place.damage.inc();
            self.damaged = true;
            at = next;
        }
        if self.end < file_bytes {
            self.file.set_len(self.end)?;
        }
        Ok(())
    }
}

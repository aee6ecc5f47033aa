//! The clock of an open loop: a thread that hands each connection the instants at which its requests are due.
//!
//! A thread, since the runtime's own timer ticks once a millisecond, and that would be added to every latency.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

/// Shortest sleep; what falls due within it goes out together.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// Starts the clock for `rate` requests a second, in turn over `connections`. It gives the requests that were due
/// while a connection's queue of overdue ones was full.
pub(super) fn start(
    rate: f64,
    begin: Instant,
    until: Instant,
    connections: Vec<mpsc::Sender<Instant>>,
) -> io::Result<JoinHandle<u64>> {
    std::thread::Builder::new().name("bench-pacer".to_owned()).spawn(move || {
        let (mut number, mut not_offered) = (0_u64, 0);
        while let Some(due) = due_at(rate, begin, until, number) {
            let now = Instant::now();
            if due > now {
                std::thread::sleep((due - now).max(SLEEP_MIN));
            }
            let turn = (number % connections.len() as u64) as usize;
            not_offered += u64::from(connections[turn].try_send(due).is_err());
            number += 1;
        }
        not_offered
    })
}

#[expect(clippy::cast_precision_loss, reason = "exact for as many requests as a run can hold")]
fn due_at(rate: f64, begin: Instant, until: Instant, number: u64) -> Option<Instant> {
    let due = begin + Duration::from_secs_f64(number as f64 / rate);
    (due < until).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fall_due_evenly_until_the_end() {
        let begin = Instant::now();
        let until = begin + Duration::from_secs(2);
        assert_eq!(due_at(1_000.0, begin, until, 0), Some(begin));
        assert_eq!(due_at(1_000.0, begin, until, 1_999), Some(begin + Duration::from_millis(1_999)));
        assert_eq!(due_at(1_000.0, begin, until, 2_000), None);
    }

    #[test]
    fn a_full_queue_is_counted_and_does_not_stop_the_clock() {
        let (sender, receiver) = mpsc::channel(10);
        let begin = Instant::now();
        let not_offered =
            start(10_000.0, begin, begin + Duration::from_millis(50), vec![sender]).unwrap().join().unwrap();
        assert_eq!(not_offered, 490);
        assert_eq!(receiver.len(), 10);
    }
}

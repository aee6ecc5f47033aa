//! What the system tells of a process: its CPU time and its memory.

use std::fs;

/// CPU time of a process so far, user and system, in clock ticks; none if it is gone.
pub(crate) fn cpu_ticks(pid: u32) -> Option<u64> {
    ticks_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Clock ticks as seconds.
#[expect(clippy::cast_precision_loss, reason = "ticks of a process's life are few enough")]
pub(crate) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Resident memory of a process, in bytes; none if it is gone.
pub(crate) fn rss_bytes(pid: u32) -> Option<u64> {
    rss_in(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Fields 14 and 15; the second field is a name in brackets that may hold anything.
fn ticks_in(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn rss_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_texts_are_read() {
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 700 55 0 0 20 0";
        assert_eq!(ticks_in(stat), Some(755));
        assert_eq!(ticks_in("nonsense"), None);
        assert_eq!(rss_in("Name:\tx\nVmRSS:\t  2048 kB\n"), Some(2_097_152));
    }
}

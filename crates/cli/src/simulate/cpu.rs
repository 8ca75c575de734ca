//! The CPU time of this process.

use std::time::Duration;

/// User and system time of all threads; `None` if the system does not provide it.
pub(crate) fn used() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    read(&stat)
}

/// The program name, in brackets, may contain anything; the fields after it are numbers. Fields 14
/// and 15 are user and system ticks, and Linux reports 100 ticks per second on every machine.
fn read(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(11).map_while(|field| field.parse::<u64>().ok());
    let ticks = ticks.next()? + ticks.next()?;
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_for_any_program_name() {
        let stat = "7 (a) b (c)) R 1 7 7 0 -1 4194304 98 0 0 0 250 30 0 0 20 0 1 0 77 1024 9\n";
        assert_eq!(read(stat), Some(Duration::from_millis(2_800)));
        assert_eq!(read("7 (a) R 1"), None);
        assert_eq!(read(""), None);
    }
}

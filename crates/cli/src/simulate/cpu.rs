//! How much processor time this process has used.

use std::time::Duration;

/// All threads together, in the program and in the kernel for it; nothing where the system does not say.
pub(crate) fn used() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    read(&stat)
}

/// The name of the program, in brackets, may hold anything; the fields behind it are numbers. The 14th
/// and 15th of all are the ticks that we want, and Linux shows a hundred of them a second everywhere.
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
    fn ticks_are_found_whatever_the_program_is_called() {
        let stat = "7 (a) b (c)) R 1 7 7 0 -1 4194304 98 0 0 0 250 30 0 0 20 0 1 0 77 1024 9\n";
        assert_eq!(read(stat), Some(Duration::from_millis(2_800)));
        assert_eq!(read("7 (a) R 1"), None);
        assert_eq!(read(""), None);
    }
}

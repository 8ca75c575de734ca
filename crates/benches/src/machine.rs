//! The machine a bench runs on, without which figures mean little.

use std::fs;
use std::thread;

/// The number of threads that can run in parallel.
#[must_use]
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The model name of the processor, if the system provides it in `/proc/cpuinfo`.
#[must_use]
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model(&text).unwrap_or("unknown processor").to_owned()
}

fn model(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, model) = lines.find(|(key, _)| key.trim() == "model name")?;
    Some(model.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_name_is_found_if_there_is_one() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.0: fast\n\nprocessor\t: 1\n";
        assert_eq!(model(text), Some("Some CPU @ 2.0: fast"));
        assert_eq!(model("Hardware : other"), None);
    }
}

//! The process itself, under the names every Prometheus client uses.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads `/proc` at each scrape; what cannot be read is left out.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name: &str, help: &str, value: Option<u64>| {
            let Some(value) = value else { return Ok(()) };
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)
        };
        gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            resident_memory(),
        )?;
        gauge(
            "process_open_fds",
            "Number of open file descriptors.",
            open_fds(),
        )?;
        let Some(seconds) = cpu_seconds() else {
            return Ok(());
        };
        let name = "process_cpu_seconds";
        let help = "Total user and system CPU time spent in seconds.";
        let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(seconds).encode(encoder)
    }
}

fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn open_fds() -> Option<u64> {
    // One of them is the directory that is being read.
    Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the command, is in parentheses and may hold anything.
    let (_, after_command) = stat.rsplit_once(')')?;
    let mut fields = after_command.split_whitespace();
    // Fields 14 and 15 of the whole line: user and system time.
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    // USER_HZ, which Linux fixes at 100 for programs on every architecture that matters here.
    Some((user + system) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_files_and_time() {
        assert!(resident_memory().unwrap() > 1 << 20);
        assert!(open_fds().unwrap() >= 3);
        assert!(cpu_seconds().unwrap() >= 0.0);
    }
}

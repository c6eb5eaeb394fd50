//! How much memory may be used: `70%` of what there is, or an amount such as `2Gi`.

use std::{fmt, fs};

use super::section::Form;

/// What [`parse`] takes, sizes apart.
pub(super) const FORM: Form = &["^0*((100|[1-9][0-9]?)%|[1-9][0-9]*(k|[KMG]i|[MG])?)$"];

/// Memory at which informers are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// An amount.
    Bytes(u64),
    /// A part of what the machine or the container has.
    Percent(u8),
}

impl MemoryLimit {
    /// The limit in bytes, from what this machine or container has now.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                available().map_or(u64::MAX, |all| all / 100 * u64::from(percent))
            }
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The container's memory limit where there is one, else the machine's memory.
fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(mem_total);
    // Inside a container both are its own; outside, the root group has no such file. "max" means no limit.
    let container = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .into_iter()
    .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    container.chain(machine).min()
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Reads a limit.
///
/// # Errors
/// What is wrong with it, as a sentence's end.
pub(super) fn parse(text: &str) -> Result<MemoryLimit, String> {
    let wrong = || format!("{text:?} is not a memory limit such as \"70%\" or \"2Gi\"");
    if let Some(percent) = text.strip_suffix('%') {
        let digits = percent.bytes().all(|b| b.is_ascii_digit());
        let percent = percent.parse().ok().filter(|_| digits);
        return match percent.ok_or_else(wrong)? {
            percent @ 1..=100 => Ok(MemoryLimit::Percent(percent)),
            _ => Err(wrong()),
        };
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit: u64 = match &text[digits..] {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit) {
        Some(bytes @ 1..) => Ok(MemoryLimit::Bytes(bytes)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_what_there_is() {
        assert_eq!(
            mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            Some(16 << 20)
        );
        assert_eq!(mem_total("MemFree: 1 kB\n"), None);
        assert_eq!(MemoryLimit::Bytes(5).bytes(), 5);
        let (half, all) = (
            MemoryLimit::Percent(50).bytes(),
            MemoryLimit::Percent(100).bytes(),
        );
        assert!(half > 1 << 20 && half < all);
    }

    #[test]
    fn memory_limits() {
        assert_eq!(parse("70%"), Ok(MemoryLimit::Percent(70)));
        assert_eq!(parse("2Gi"), Ok(MemoryLimit::Bytes(2 << 30)));
        assert_eq!(parse("500M"), Ok(MemoryLimit::Bytes(500_000_000)));
        assert_eq!(parse("4096"), Ok(MemoryLimit::Bytes(4096)));
        for wrong in [
            "",
            "%",
            "0%",
            "101%",
            "+7%",
            "-1",
            "0",
            "1.5Gi",
            "2GB",
            "Gi",
            "99999999999Gi",
        ] {
            let expect = format!("{wrong:?} is not a memory limit such as \"70%\" or \"2Gi\"");
            assert_eq!(parse(wrong), Err(expect));
        }
    }
}

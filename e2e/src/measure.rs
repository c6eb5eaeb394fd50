//! What a process costs, as the kernel counts it, for the benchmarks.

use anyhow::Context as _;

/// The kernel counts CPU in hundredths of a second (USER_HZ is 100 on every Linux architecture with a stable ABI).
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system CPU of a process, in seconds.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; utime and stime are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(") ").context("a stat line")?;
    let mut fields = fields.split(' ').skip(11);
    let mut next = || -> anyhow::Result<f64> { Ok(fields.next().context("a stat line")?.parse()?) };
    Ok((next()? + next()?) / TICKS_PER_SECOND)
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .context("VmRSS")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("VmRSS")?.parse()?;
    Ok(kilobytes << 10)
}

/// The machine's load averages: figures from a busy machine are not worth much.
pub fn load() -> anyhow::Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    Ok(load.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// The middle one of the rounds.
pub fn median(rounds: &[f64]) -> f64 {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

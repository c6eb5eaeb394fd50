//! What a process costs, as the kernel counts it, for the benchmarks.

use anyhow::Context as _;

use crate::poll::{PATIENCE, wait_for};

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

/// Memory that stays within half a hundredth over so many looks is settled: two seconds.
const LOOKS: usize = 100;

/// Resident memory of a process in bytes, once it hardly changes any more.
pub async fn settled_bytes(pid: u32) -> anyhow::Result<u64> {
    let mut seen: Vec<u64> = Vec::new();
    wait_for("the memory to settle", PATIENCE, || {
        let looked = resident_bytes(pid).map(|now| {
            seen.push(now);
            let recent = &seen[seen.len().saturating_sub(LOOKS)..];
            let low = recent.iter().min().copied().unwrap_or(now);
            let high = recent.iter().max().copied().unwrap_or(now);
            (recent.len() == LOOKS && high - low <= high / 200).then_some(now)
        });
        async move { looked.and_then(|settled| settled.ok_or_else(|| anyhow::anyhow!("it changes"))) }
    })
    .await
}

/// The machine's load averages: figures from a busy machine are not worth much.
pub fn load() -> anyhow::Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    Ok(load.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// The middle one of the rounds.
pub fn median(rounds: &[f64]) -> f64 {
    percentile(rounds, 50)
}

/// The one that so many of a hundred are below; there must be one at least.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent / 100).min(values.len() - 1)]
}

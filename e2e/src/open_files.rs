//! Descriptors: a thousand clusters need more than the 1024 that many shells allow.

use anyhow::{Context as _, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Sees to it that this process and those it starts may open so many files.
///
/// # Errors
/// If the hard limit is lower.
pub fn allow(needed: usize) -> anyhow::Result<()> {
    let needed = u64::try_from(needed)?;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|hard| hard >= needed),
        "{needed} open files are needed and the limit is {}: raise it (ulimit -Hn), or ask for less",
        limit.maximum.unwrap_or(needed)
    );
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")
}

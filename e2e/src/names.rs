//! Names whose addresses a test chooses and changes.
//!
//! No test may write to `/etc/hosts` or have the system ask another name server. But a process can be given another
//! `getaddrinfo`, which asks a file first: `e2e/names/getaddrinfo.c`. Nothing else of the process is other than usual.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/names/getaddrinfo.c");

/// A file of names for processes that are started with [`Names::env`].
#[derive(Debug)]
pub struct Names {
    dir: TempDir,
    library: PathBuf,
}

impl Names {
    /// No names yet: the system is asked for all.
    ///
    /// # Errors
    /// If there is no C compiler.
    pub fn new() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let library = dir.path().join("names.so");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let output = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([library.as_path(), Path::new(SOURCE)])
            .arg("-ldl")
            .output()
            .with_context(|| format!("{compiler}: install a C compiler"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{compiler}: {said}");
        Ok(Self { dir, library })
    }

    /// From now on a name has this address, or none, and all others are the system's.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, name: &str, address: Option<IpAddr>) -> anyhow::Result<()> {
        let address = address.map_or_else(|| "-".to_owned(), |address| address.to_string());
        // Renamed over, so that nobody reads half of it.
        let next = self.dir.path().join("next");
        std::fs::write(&next, format!("{name} {address}\n"))?;
        Ok(std::fs::rename(next, self.file())?)
    }

    /// What a process that asks it needs in its environment. One that is linked statically takes no notice.
    pub fn env(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FLEETCACHE_E2E_NAMES", self.file().display().to_string()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("names")
    }
}

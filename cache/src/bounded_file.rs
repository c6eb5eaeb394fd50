//! Files that somebody else writes, and that need not be what they should: what a path leads to may be a pipe, a device
//! without an end, or a log.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes of a token, a certificate, or the kubeconfig of one cluster: a few kilobytes.
pub const SMALL: u64 = 1 << 20;

/// Bytes of a kubeconfig with thousands of contexts.
pub const LARGE: u64 = 64 << 20;

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// It is none, it is larger, or the file system says no.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    check(path, most)?;
    let mut bytes = Vec::new();
    // It may have grown since.
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large(most));
    }
    Ok(bytes)
}

/// Whether it is a regular file of at most so many bytes, for who reads it otherwise. Nothing is opened: the open of a pipe
/// waits for who writes into it.
///
/// # Errors
/// As [`read`].
pub fn check(path: &Path, most: u64) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if metadata.len() > most {
        return Err(too_large(most));
    }
    Ok(())
}

fn too_large(most: u64) -> io::Error {
    io::Error::other(format!("it is larger than {} MiB", most >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_too_large_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let told = |path: &Path| {
            let read = read(path, SMALL).map_err(|error| error.to_string());
            assert_eq!(check(path, SMALL).is_ok(), read.is_ok());
            read.map(|bytes| bytes.len())
        };
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        assert_eq!(told(&path), Ok(1 << 20));
        fs::write(&path, vec![0; (1 << 20) + 1]).unwrap();
        assert_eq!(told(&path), Err("it is larger than 1 MiB".to_owned()));
        // A file that says it is empty and has no end, and one whose end nobody knows.
        for path in [Path::new("/dev/zero"), folder.path()] {
            assert_eq!(told(path), Err("it is not a file".to_owned()));
        }
    }
}

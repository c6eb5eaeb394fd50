//! Where the lines go: a file that may be renamed meanwhile, or standard output.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::Access;

use crate::config::{Config, Mistakes};
use crate::state_dir;

/// How often it is looked whether the file is still the one at its path.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a pipe is left alone that somebody else made one that does not wait.
const PIPE_PAUSE: Duration = Duration::from_millis(10);

/// Where the audit log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    /// Standard output, which has nothing else: logs go to standard error.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl fmt::Display for AuditTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("-"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Looks whether what a configuration says of the audit log can be done, and changes nothing.
///
/// # Errors
/// Why not.
pub fn check(config: &Config) -> Result<(), Mistakes> {
    let Some(AuditTarget::File(path)) = &config.audit else {
        return Ok(());
    };
    let own = state_dir::FILES.map(|name| config.state_dir.join(name));
    let mut used = config.files().chain(own.iter().map(PathBuf::as_path));
    let problem = match used.any(|it| is_same(it, path)) {
        true => Err(format!(
            "{} is a file that the proxy reads; name another",
            path.display()
        )),
        false => can_be_written(path),
    };
    problem.map_err(|problem| config.mistake("audit.path", problem))
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one)
            .is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

fn can_be_written(path: &Path) -> Result<(), String> {
    let shown = path.display();
    if let Ok(metadata) = fs::metadata(path) {
        is_regular(&metadata).map_err(|why| format!("{shown}: {why}"))?;
        let opened = OpenOptions::new().append(true).open(path);
        return match opened {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{shown} cannot be written: {error}")),
        };
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let shown = directory.display();
    let metadata = fs::metadata(directory)
        .map_err(|error| format!("its directory {shown} cannot be used: {error}"))?;
    if !metadata.is_dir() {
        return Err(format!("{shown} is not a directory"));
    }
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("no file can be made in {shown}: {error}"))
}

/// A pipe would hold up who opens it until somebody reads, and a device keeps nothing.
fn is_regular(metadata: &fs::Metadata) -> Result<(), &'static str> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err("it is not a regular file; standard output is \"-\""),
    }
}

/// A target, opened.
pub struct Output {
    target: AuditTarget,
    /// None while it cannot be opened.
    to: Option<File>,
    looked: Instant,
    /// Whether the last line there is not whole.
    torn: bool,
}

/// What was not written, and why.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// Lines that were, before it.
    pub(super) whole_lines: usize,
    pub(super) error: io::Error,
}

impl Output {
    /// Opens a target; a file that is not there is made.
    ///
    /// # Errors
    /// The system said no.
    pub fn open(target: &AuditTarget) -> io::Result<Self> {
        let mut output = Self {
            target: target.clone(),
            to: None,
            looked: Instant::now(),
            torn: false,
        };
        output.try_open()?;
        Ok(output)
    }

    pub(super) fn target(&self) -> &AuditTarget {
        &self.target
    }

    /// Leaves the file for the one at its path, which is made where there is none. What stands in the way is told at the
    /// next write.
    pub(super) fn reopen(&mut self) {
        self.to = None;
        let _ = self.try_open();
    }

    fn try_open(&mut self) -> io::Result<()> {
        (self.to, self.torn) = match &self.target {
            // Not by way of `std::io::stdout`, which keeps what cannot be written for later.
            AuditTarget::Stdout => (
                Some(io::stdout().as_fd().try_clone_to_owned()?.into()),
                false,
            ),
            AuditTarget::File(path) => {
                let (file, torn) = open_file(path)?;
                (Some(file), torn)
            }
        };
        self.looked = Instant::now();
        Ok(())
    }

    /// Writes whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), Unwritten> {
        let nothing = |error| Unwritten {
            whole_lines: 0,
            error,
        };
        if self.looked.elapsed() >= LOOK_INTERVAL {
            self.looked = Instant::now();
            if self.has_moved() {
                self.to = None;
            }
        }
        if self.to.is_none() {
            self.try_open().map_err(nothing)?;
        }
        let Some(to) = &mut self.to else {
            return Ok(());
        };
        if self.torn {
            write(to, b"\n").map_err(|(_, error)| nothing(error))?;
            self.torn = false;
        }
        write(to, lines).map_err(|(written, error)| {
            let written = &lines[..written];
            self.torn = written.last().is_some_and(|last| *last != b'\n');
            Unwritten {
                whole_lines: memchr::memchr_iter(b'\n', written).count(),
                error,
            }
        })
    }

    /// Whether the file is not the one at its path any more.
    fn has_moved(&self) -> bool {
        let (AuditTarget::File(path), Some(file)) = (&self.target, &self.to) else {
            return false;
        };
        let id = |it: fs::Metadata| (it.dev(), it.ino());
        match (fs::metadata(path), file.metadata()) {
            (Ok(there), Ok(here)) => id(there) != id(here),
            (Err(_), _) | (_, Err(_)) => true,
        }
    }
}

/// A file that is there keeps its mode; a new one is the proxy's alone. Also tells whether its last line is not whole, as a
/// process that was killed leaves it.
fn open_file(path: &Path) -> io::Result<(File, bool)> {
    if let Ok(metadata) = fs::metadata(path) {
        is_regular(&metadata).map_err(io::Error::other)?;
    }
    let mut file = OpenOptions::new()
        .append(true)
        .read(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let mut last = *b"\n";
    if file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_exact(&mut last)?;
    }
    Ok((file, last != *b"\n"))
}

/// Writes all, or tells how much was written before it failed.
fn write(to: &mut impl Write, mut bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let all = bytes.len();
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err((all - bytes.len(), io::ErrorKind::WriteZero.into())),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PIPE_PAUSE),
            Err(error) => return Err((all - bytes.len(), error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn open(path: &Path) -> Output {
        Output::open(&AuditTarget::File(path.to_owned())).unwrap()
    }

    #[test]
    fn a_new_file_is_the_proxys_alone_and_one_that_is_there_is_added_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        open(&path).write(b"one\n").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        open(&path).write(b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
        assert_eq!(mode(&path), 0o640);
        // A process that was killed while it wrote.
        fs::write(&path, "one\ntw").unwrap();
        open(&path).write(b"three\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntw\nthree\n");
    }

    #[test]
    fn a_file_that_moved_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("audit"), dir.path().join("audit.1"));
        let mut output = open(&path);
        output.write(b"one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        output.write(b"two\n").unwrap();
        assert!(!path.exists(), "it is not looked at each time");
        output.reopen();
        output.write(b"three\n").unwrap();
        assert_eq!(fs::read(&moved).unwrap(), b"one\ntwo\n");
        assert_eq!(fs::read(&path).unwrap(), b"three\n");

        // Nobody says so: it is seen at the next look, whether there is another in its place or none.
        let a_look_ago = Instant::now().checked_sub(LOOK_INTERVAL).unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, "").unwrap();
        output.looked = a_look_ago;
        output.write(b"other\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"other\n");
        fs::remove_file(&path).unwrap();
        output.looked = a_look_ago;
        output.write(b"four\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"four\n");
        // Not even a directory: nothing is written where nobody finds it.
        fs::remove_dir_all(dir.path()).unwrap();
        output.looked = a_look_ago;
        let unwritten = output.write(b"five\n").unwrap_err();
        assert_eq!(unwritten.error.kind(), io::ErrorKind::NotFound);
        assert_eq!(unwritten.whole_lines, 0);
        fs::create_dir(dir.path()).unwrap();
        output.write(b"six\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"six\n");
    }

    /// Takes so many bytes, at most four at once, and then nothing more.
    struct Disk(usize, Vec<u8>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0).min(4);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0 -= taken;
            self.1.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_tells_how_much_it_took() {
        let mut disk = Disk(100, Vec::new());
        write(&mut disk, b"one\ntwo\nthree\n").unwrap();
        assert_eq!(disk.1, b"one\ntwo\nthree\n");
        let (written, error) = write(&mut Disk(6, Vec::new()), b"one\ntwo\n").unwrap_err();
        assert_eq!((written, error.kind()), (6, io::ErrorKind::StorageFull));
    }

    #[test]
    fn after_a_torn_line_comes_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let mut output = open(&path);
        output.write(b"{\"a\":").unwrap();
        output.torn = true;
        output.write(b"{}\n").unwrap();
        output.write(b"{}\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{\"a\":\n{}\n{}\n");
        // Somebody takes a part of a line and goes.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        output.to = Some(OwnedFd::from(ours).into());
        let reader = thread::spawn(move || theirs.read_exact(&mut [0; 10]).unwrap());
        let long = [vec![b'x'; 16 << 20], vec![b'\n']].concat();
        assert_eq!(output.write(&long).unwrap_err().whole_lines, 0);
        reader.join().unwrap();
        assert!(output.torn);
        let mut full = open(&path);
        full.to = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let unwritten = full.write(b"one\n").unwrap_err();
        assert_eq!(unwritten.error.kind(), io::ErrorKind::StorageFull);
    }
}

//! The directory where a proxy keeps what must survive a restart: its CA, its serving certificate, its token.

mod admin_address;
mod certificates;

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

pub use admin_address::{ADMIN_ADDRESS, admin_address};
pub(crate) use certificates::CA_CERTIFICATE;
pub use certificates::Certificates;

/// Name of the kubeconfig in a state directory.
pub const KUBECONFIG: &str = "kubeconfig";

const TOKEN: &str = "token";
const LOCK: &str = "lock";
/// The names of all files in it.
pub(crate) const FILES: [&str; 7] = [
    KUBECONFIG,
    TOKEN,
    LOCK,
    ADMIN_ADDRESS,
    certificates::CA,
    CA_CERTIFICATE,
    certificates::SERVING,
];

/// A state directory, held by this process alone.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    // Two proxies that share a directory would overwrite each other's kubeconfig. The lock ends with the file handle,
    // so a killed process leaves none behind.
    _lock: File,
}

/// The state directory that a kubeconfig is in, where a proxy writes it.
pub(crate) fn of_kubeconfig(path: &Path) -> Option<&Path> {
    let dir = path.parent().filter(|dir| dir.join(LOCK).exists())?;
    path.ends_with(KUBECONFIG).then_some(dir)
}

/// What is wrong with a state directory; each names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The file system said no.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a file, or something else.
    #[error("{} is not a directory; choose one with --state-dir", path.display())]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// Another process holds it.
    #[error(
        "{} is used by another fleetcache; stop that one or choose another directory with --state-dir",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A file does not hold what the proxy once wrote there.
    #[error(
        "{} is damaged ({problem}); restore it, or delete it to have a new one made{consequence}",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What deleting it means to clients, starting with a comma; empty where nothing.
        consequence: &'static str,
    },
}

/// What deleting a file means, where clients depend on what it held.
const NEW_KUBECONFIG: &str = ", after which clients need the new kubeconfig";

impl StateDir {
    /// Creates the directory where needed, readable by its owner only, and locks it.
    ///
    /// # Errors
    /// It cannot be made, or another process holds it.
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let create = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path);
        match create {
            Err(_) if path.exists() && !path.is_dir() => {
                return Err(StateDirError::NotADirectory { path });
            }
            create => create.map_err(io_error("create", &path))?,
        }
        // Clients are told this path. Only the file system knows where `..` leads, since links may be before it.
        let path = match fs::canonicalize(&path) {
            Ok(clean) if path.components().any(|it| it == Component::ParentDir) => clean,
            _ => path.components().collect(),
        };
        let lock_path = path.join(LOCK);
        let lock = private_file()
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(io_error("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateDirError::InUse { path }),
            Err(TryLockError::Error(err)) => Err(io_error("lock", &lock_path)(err)),
        }
    }

    /// Where it is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The token, made at the first call.
    ///
    /// # Errors
    /// Its file is damaged or cannot be read or written.
    pub fn token(&self) -> Result<String, StateDirError> {
        let path = self.path.join(TOKEN);
        let Some(bytes) = read_optional(&path)? else {
            let token = fleetcache_auth::generate_token();
            write_private(&path, format!("{token}\n").as_bytes())?;
            return Ok(token);
        };
        let token = String::from_utf8(bytes).unwrap_or_default();
        let token = token.trim();
        // Every token made here is longer; half of one is what a full disk or an editor leaves.
        if token.len() < 32 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(StateDirError::Damaged {
                path,
                problem: "it holds no token".to_owned(),
                consequence: NEW_KUBECONFIG,
            });
        }
        Ok(token.to_owned())
    }

    /// The CA and a certificate for localhost and `names` (DNS names and IP addresses), made or renewed where needed.
    ///
    /// # Errors
    /// Their files are damaged or cannot be read or written.
    pub fn certificates(&self, names: &[String]) -> Result<Certificates, StateDirError> {
        certificates::load_or_make(&self.path, names, std::time::SystemTime::now())
    }
}

/// Writes a file readable by its owner only, so that a reader sees the old content or the new one and nothing between.
///
/// # Errors
/// The file system said no; the old content is still there.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), StateDirError> {
    // A link is followed, or it would be replaced by a file.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|it| !it.is_file()) {
        // A pipe or a terminal: there is nothing to replace.
        return fs::write(&target, content).map_err(io_error("write", path));
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = target.with_file_name(name);
    let write = || {
        let _ = fs::remove_file(&temporary);
        let mut file = private_file().create_new(true).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, &target)
    };
    write().map_err(|err| {
        let _ = fs::remove_file(&temporary);
        io_error("write", path)(err)
    })
}

fn private_file() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// A file's content; None where there is no such file.
fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, StateDirError> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(io_error("read", path)(err)),
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateDirError {
    let path = path.to_owned();
    move |source| StateDirError::Io {
        doing,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_directory_is_private_and_reused() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b");
        let dir = StateDir::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        let token = dir.token().unwrap();
        let made = dir.certificates(&[]).unwrap();
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap().path();
            assert_eq!(mode(&entry), 0o600, "{}", entry.display());
        }
        drop(dir);
        let dir = StateDir::open(&path).unwrap();
        assert_eq!(dir.token().unwrap(), token);
        let again = dir.certificates(&[]).unwrap();
        assert_eq!(again.ca_pem, made.ca_pem);
        assert_eq!(again.chain, made.chain);
    }

    #[test]
    fn its_path_is_clean() {
        let temp = tempfile::tempdir().unwrap();
        let temp = fs::canonicalize(temp.path()).unwrap();
        fs::create_dir_all(temp.join("a/b")).unwrap();
        for path in ["a/./c//", "a/b/../c"] {
            let dir = StateDir::open(&temp.join(path)).unwrap();
            assert_eq!(dir.path().as_os_str(), temp.join("a/c").as_os_str());
        }
    }

    #[test]
    fn a_file_is_no_state_directory() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        let err = StateDir::open(temp.path()).unwrap_err().to_string();
        let expect = format!(
            "{} is not a directory; choose one with --state-dir",
            temp.path().display()
        );
        assert_eq!(err, expect);
    }

    #[test]
    fn two_proxies_cannot_share_it() {
        let temp = tempfile::tempdir().unwrap();
        let held = StateDir::open(temp.path()).unwrap();
        let err = StateDir::open(temp.path()).unwrap_err().to_string();
        let expect = format!(
            "{} is used by another fleetcache; stop that one or choose another directory with --state-dir",
            temp.path().display()
        );
        assert_eq!(err, expect);
        drop(held);
        StateDir::open(temp.path()).unwrap();
    }

    #[test]
    fn a_damaged_token_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path()).unwrap();
        let path = temp.path().join("token");
        for content in [
            "",
            "short\n",
            "two words are not a token at all, this line is not\n",
        ] {
            fs::write(&path, content).unwrap();
            let expect = format!(
                "{} is damaged (it holds no token); restore it, or delete it to have a new one made, after which \
                 clients need the new kubeconfig",
                path.display()
            );
            assert_eq!(dir.token().unwrap_err().to_string(), expect);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(dir.token().unwrap().len(), 43);
    }

    #[test]
    fn a_write_replaces_the_target_of_a_link_and_leaves_nothing_behind() {
        let temp = tempfile::tempdir().unwrap();
        let (file, link) = (temp.path().join("file"), temp.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_private(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(mode(&file), 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2);
        let err = write_private(&temp.path().join("missing/file"), b"x").unwrap_err();
        assert!(err.to_string().starts_with("cannot write "), "{err}");
    }
}

//! Where the admin port of the proxy is that holds a state directory, for commands that ask it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::{StateDir, StateDirError, read_optional, write_private};

/// Name of the file.
pub const ADMIN_ADDRESS: &str = "admin-address";

impl StateDir {
    /// Writes where the admin port is, as a program on this machine reaches it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_admin_address(&self, bound: SocketAddr) -> Result<(), StateDirError> {
        let mut address = bound;
        // "All addresses" is not one that a client can dial.
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
        write_private(
            &self.path.join(ADMIN_ADDRESS),
            format!("{address}\n").as_bytes(),
        )
    }

    /// The proxy ends. One that is killed leaves the file behind, and the next start writes it anew.
    pub fn remove_admin_address(&self) {
        let _ = fs::remove_file(self.path.join(ADMIN_ADDRESS));
    }
}

/// Where the admin port of the proxy is that holds this state directory; `None` where nobody has said.
///
/// # Errors
/// The file cannot be read, or holds no address.
pub fn admin_address(state_dir: &Path) -> Result<Option<SocketAddr>, StateDirError> {
    let path = state_dir.join(ADMIN_ADDRESS);
    let Some(bytes) = read_optional(&path)? else {
        return Ok(None);
    };
    let address = String::from_utf8(bytes).ok();
    match address.and_then(|it| it.trim().parse().ok()) {
        Some(address) => Ok(Some(address)),
        None => Err(StateDirError::Damaged {
            path,
            problem: "it holds no address".to_owned(),
            consequence: " when the proxy starts again; until then name the port with --admin",
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_found_as_long_as_the_proxy_runs() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, file) = (
            StateDir::open(temp.path()).unwrap(),
            temp.path().join(ADMIN_ADDRESS),
        );
        let found = || admin_address(temp.path()).unwrap().map(|it| it.to_string());
        assert_eq!(found(), None);
        for (bound, expected) in [
            ("127.0.0.1:8081", "127.0.0.1:8081"),
            ("0.0.0.0:9", "127.0.0.1:9"),
            ("[::]:9", "[::1]:9"),
            ("10.0.0.7:1", "10.0.0.7:1"),
        ] {
            dir.write_admin_address(bound.parse().unwrap()).unwrap();
            assert_eq!(found().as_deref(), Some(expected));
        }
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&file, "8081\n").unwrap();
        let error = admin_address(temp.path()).unwrap_err().to_string();
        assert!(error.contains("it holds no address"), "{error}");
        dir.remove_admin_address();
        assert_eq!(found(), None);
    }
}

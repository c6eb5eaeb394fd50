//! Files with a secret in them, and who else may read them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const MAY_READ: u32 = 0o004;
const MAY_ENTER: u32 = 0o001;

/// What there is to say of such a file that every user of the machine may read: it lets others, and so does each directory
/// above it. Its group is not looked at: by that Kubernetes gives a pod its Secrets (`fsGroup`).
pub fn exposed(path: &Path) -> Option<String> {
    // Where symbolic links end: their own modes mean nothing.
    let file = fs::canonicalize(path).ok()?;
    let lets = |path: &Path, what| fs::metadata(path).is_ok_and(|it| it.mode() & what != 0);
    let mut above = file.ancestors().skip(1);
    let is_exposed = file.is_file() && lets(&file, MAY_READ) && above.all(|it| lets(it, MAY_ENTER));
    is_exposed.then(|| {
        let path = path.display();
        format!("every user of this machine may read {path}, which is for secrets: chmod o= {path}")
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_exposed_where_it_and_all_above_it_let_others() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("token"), folder.path().join("link"));
        fs::write(&file, "t").unwrap();
        symlink("token", &link).unwrap();
        for (above, mode, expected) in [
            (0o755, 0o644, true),
            (0o711, 0o604, true),
            (0o755, 0o640, false),
            (0o755, 0o600, false),
            (0o700, 0o644, false),
            (0o754, 0o644, false),
        ] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(folder.path(), Permissions::from_mode(above)).unwrap();
            for path in [&file, &link] {
                let told = exposed(path);
                assert_eq!(told.is_some(), expected, "{above:o} {mode:o} {told:?}");
            }
        }
        for path in [folder.path(), &folder.path().join("none")] {
            assert_eq!(exposed(path), None);
        }
    }
}

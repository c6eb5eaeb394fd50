//! Looks at files that come, change and go.

use std::os::unix::fs::symlink;

use super::*;

struct Folder {
    dir: tempfile::TempDir,
    directory: Directory,
}

fn kubeconfig(server: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "k", "user": "u"}}],
    })
    .to_string()
}

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(dir.path());
        Self { dir, directory }
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.dir.path().join(file), text).unwrap();
    }

    fn remove(&self, file: &str) {
        std::fs::remove_file(self.dir.path().join(file)).unwrap();
    }

    fn look(&mut self) -> bool {
        self.directory.look(false)
    }

    /// Each cluster with its server's port; 0 where its file cannot be used.
    fn ports(&self) -> Vec<(String, u16)> {
        let known = self.directory.known();
        let port = |it: Candidate| {
            let port = it.cluster.ok().and_then(|it| it.endpoint.server.port_u16());
            (it.name, port.unwrap_or_default())
        };
        known.clusters.unwrap().into_iter().map(port).collect()
    }

    fn expect(&self, ports: &[(&str, u16)]) {
        let ports: Vec<_> = ports.iter().map(|(n, p)| ((*n).to_owned(), *p)).collect();
        assert_eq!(self.ports(), ports);
    }
}

#[test]
fn files_come_change_and_go_when_two_looks_have_seen_it() {
    let mut folder = Folder::new();
    folder.write("a.kubeconfig", &kubeconfig("https://h:1"));
    folder.write("notes.txt", "no kubeconfig");
    folder.write(".a.kubeconfig.swp", "an editor's");
    folder.write(".hidden.kubeconfig", "an editor's");
    assert!(folder.look(), "what is there at first is taken at once");
    folder.expect(&[("a", 1)]);
    assert!(!folder.look());

    folder.write("a.kubeconfig", &kubeconfig("https://h:2"));
    folder.write("b.c.kubeconfig", &kubeconfig("https://h:3"));
    assert!(!folder.look(), "they may be written still");
    folder.expect(&[("a", 1)]);
    assert!(folder.look());
    folder.expect(&[("a", 2), ("b.c", 3)]);
    // The same content, written anew, is nothing.
    folder.write("a.kubeconfig", &kubeconfig("https://h:2"));
    assert!(!folder.look() && !folder.look());

    // Away for a moment, as where another takes its place.
    folder.remove("a.kubeconfig");
    assert!(!folder.look());
    folder.write("a.kubeconfig", &kubeconfig("https://h:2"));
    assert!(!folder.look() && !folder.look());
    folder.remove("a.kubeconfig");
    assert!(!folder.look() && folder.look());
    folder.expect(&[("b.c", 3)]);
    assert!(!folder.look());
}

#[test]
fn a_file_that_is_written_all_the_time_holds_up_no_other() {
    let mut folder = Folder::new();
    folder.look();
    for port in 1..9 {
        folder.write("busy.kubeconfig", &kubeconfig(&format!("https://h:{port}")));
        folder.write("calm.kubeconfig", &kubeconfig("https://h:9"));
        folder.look();
    }
    folder.expect(&[("calm", 9)]);
}

#[test]
fn a_broken_file_is_told_of_and_disturbs_no_other() {
    let mut folder = Folder::new();
    folder.write("a.kubeconfig", &kubeconfig("https://h:1"));
    folder.write("B.kubeconfig", &kubeconfig("https://h:1"));
    std::fs::create_dir(folder.dir.path().join("d.kubeconfig")).unwrap();
    folder.look();
    folder.write("a.kubeconfig", "half a kub");
    folder.write("c.kubeconfig", &kubeconfig("https://h:3"));
    assert!(!folder.look() && folder.look());
    folder.expect(&[("a", 0), ("c", 3), ("d", 0)]);
    let known = folder.directory.known();
    assert!(
        known.rejected[0].ends_with(
            "B.kubeconfig: \"B\" is no name of a cluster, which has lower-case letters, digits, \"-\" and \".\"; rename the file"
        ),
        "{known:?}"
    );
    let reasons: Vec<_> = known.clusters.into_iter().flatten().collect();
    let reason = |i: usize| reasons[i].cluster.clone().unwrap_err().reason.unwrap();
    assert!(reason(0).contains("a.kubeconfig: it is not a kubeconfig"));
    assert!(reason(2).contains("d.kubeconfig: it cannot be read: it is not a file"));
    let word = |i: usize| {
        let unusable = reasons[i].cluster.clone().unwrap_err();
        unusable.rejection.unwrap().reason
    };
    assert_eq!(word(0), RejectionReason::Invalid);
    assert_eq!(word(2), RejectionReason::Unreadable);
}

/// A file without an end, and one that is no kubeconfig's size, are not read into memory each second.
#[test]
fn what_is_no_file_or_too_large_is_not_read() {
    let mut folder = Folder::new();
    symlink("/dev/zero", folder.dir.path().join("endless.kubeconfig")).unwrap();
    let padded = format!("{}{}", kubeconfig("https://h:1"), " ".repeat(1 << 20));
    folder.write("large.kubeconfig", &padded);
    folder.write("small.kubeconfig", &kubeconfig("https://h:2"));
    folder.look();
    folder.expect(&[("endless", 0), ("large", 0), ("small", 2)]);
    let known = folder.directory.known().clusters.unwrap();
    let reason = |i: usize| known[i].cluster.clone().unwrap_err().reason.unwrap();
    assert!(reason(0).contains("it is not a file"), "{}", reason(0));
    assert!(reason(1).contains("larger than 1 MiB"), "{}", reason(1));
}

#[test]
fn a_mounted_volume_may_be_swapped() {
    // As Kubernetes mounts a Secret or a ConfigMap: all files lead through one link, which is swapped.
    let mut folder = Folder::new();
    let at = |path: &str| folder.dir.path().join(path);
    for (version, port) in [("..1", 1), ("..2", 2)] {
        std::fs::create_dir(at(version)).unwrap();
        let text = kubeconfig(&format!("https://h:{port}"));
        std::fs::write(at(version).join("a.kubeconfig"), text).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/a.kubeconfig", at("a.kubeconfig")).unwrap();
    let (next, data) = (at("..data_tmp"), at("..data"));
    folder.look();
    folder.expect(&[("a", 1)]);
    symlink("..2", &next).unwrap();
    std::fs::rename(&next, &data).unwrap();
    assert!(!folder.look() && folder.look());
    folder.expect(&[("a", 2)]);
}

#[test]
fn a_directory_that_is_away_takes_nothing_with_it() {
    let mut folder = Folder::new();
    folder.write("a.kubeconfig", &kubeconfig("https://h:1"));
    folder.look();
    let (path, aside) = (
        folder.dir.path().to_owned(),
        folder.dir.path().with_extension("aside"),
    );
    std::fs::rename(&path, &aside).unwrap();
    assert!(folder.look(), "it is told of");
    assert!(!folder.look());
    folder.expect(&[("a", 1)]);
    assert!(folder.directory.known().troubles[0].contains("it cannot be read"));
    std::fs::rename(&aside, &path).unwrap();
    assert!(folder.look());
    assert!(folder.directory.known().troubles.is_empty());
    folder.expect(&[("a", 1)]);
    // One that was never there knows of no cluster, and not that there is none.
    let mut missing = Directory::new(Path::new("/no/directory"));
    assert!(missing.look(false));
    assert!(missing.known().clusters.is_none());
    // Mounted later it is well at once.
    missing.path.clone_from(&path);
    assert!(missing.look(false));
    assert!(missing.known().troubles.is_empty());
    assert!(!missing.look(false));
}

//! A directory of kubeconfigs, each file a cluster. Its files are local ones: they may name plugins and other files.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fleetcache_cache::cluster_config::{ClusterConfig, RejectionReason, SourceKind};
use fleetcache_cache::{bounded_file, kubeconfig};

use super::{Candidate, Known, Source, Unusable};
use crate::config::is_pipe;

/// What a file's name ends with; what is before it is the cluster's name.
const SUFFIX: &str = ".kubeconfig";

/// A directory, as it was looked at.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// By the cluster's name.
    files: BTreeMap<String, File>,
    /// Why it cannot be read now.
    unreadable: Option<String>,
    /// Files whose names are none of a cluster, a sentence each.
    misnamed: BTreeSet<String>,
    /// Whether it was ever read.
    listed: bool,
}

/// A file: as two looks have seen it, and what the last look saw.
#[derive(Debug)]
struct File {
    seen: Seen,
    /// What the cluster was made of.
    taken: Seen,
    cluster: Result<ClusterConfig, String>,
}

/// What is where a file should be. By content, since a swapped symbolic link and a file that is written anew with what it
/// had keep or change times that tell nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Unreadable(String),
    Content(u64),
}

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            files: BTreeMap::new(),
            unreadable: None,
            misnamed: BTreeSet::new(),
            listed: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{SUFFIX}"))
    }

    /// The clusters' names, of which there are files now.
    fn list(&self, misnamed: &mut BTreeSet<String>) -> std::io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path)? {
            let file = entry?.file_name();
            let file = file.to_string_lossy();
            // Hidden: what Kubernetes mounts beside the files, and what editors leave.
            let Some(name) = file.strip_suffix(SUFFIX).filter(|_| !file.starts_with('.')) else {
                continue;
            };
            if kubeconfig::is_cluster_name(name) {
                names.insert(name.to_owned());
            } else {
                misnamed.insert(format!(
                    "{}: {name:?} is no name of a cluster, which has lower-case letters, digits, \"-\" and \".\"; rename the \
                     file",
                    self.path.join(&*file).display()
                ));
            }
        }
        Ok(names)
    }
}

impl Source for Directory {
    fn kind(&self) -> SourceKind {
        SourceKind::Directory
    }

    /// A change of a file counts when two looks have seen it, so that one which is being written is not. Each file is looked
    /// at on its own: one that never comes to rest holds up no other.
    fn look(&mut self, again: bool) -> bool {
        let mut misnamed = BTreeSet::new();
        let names = match self.list(&mut misnamed) {
            Ok(names) => names,
            Err(error) => {
                // What was there is there still, as far as anybody knows.
                let trouble = format!(
                    "{}: it cannot be read: {error}; check the path and its permissions",
                    self.path.display()
                );
                let before = self.unreadable.replace(trouble);
                return before != self.unreadable;
            }
        };
        let at_once = again || !self.listed;
        let is_back = self.unreadable.take().is_some();
        let mut news = is_back || !self.listed || self.misnamed != misnamed;
        self.listed = true;
        self.misnamed = misnamed;
        let known = self.files.keys().cloned();
        let all: BTreeSet<_> = known.chain(names).collect();
        for name in all {
            let path = self.path_of(&name);
            let file = self.files.entry(name.clone()).or_insert_with(File::new);
            news |= file.look(&path, &name, at_once);
            if file.taken == Seen::Nothing && file.seen == Seen::Nothing {
                self.files.remove(&name);
            }
        }
        news
    }

    fn known(&self) -> Known {
        let taken = |(name, file): (&String, &File)| {
            (file.taken != Seen::Nothing).then(|| Candidate {
                name: name.clone(),
                origin: self.path_of(name).display().to_string(),
                // Whatever is in the file: its name says which cluster it means.
                identity: name.clone(),
                cluster: file.cluster.clone().map_err(|message| {
                    let reason = match file.taken {
                        Seen::Unreadable(_) => RejectionReason::Unreadable,
                        Seen::Nothing | Seen::Content(_) => RejectionReason::Invalid,
                    };
                    Unusable::told(reason, message)
                }),
            })
        };
        let clusters = self.files.iter().filter_map(taken).collect();
        Known {
            clusters: self.listed.then_some(clusters),
            rejected: self.misnamed.iter().cloned().collect(),
            troubles: self.unreadable.iter().cloned().collect(),
            ..Known::default()
        }
    }
}

impl File {
    fn new() -> Self {
        Self {
            seen: Seen::Nothing,
            taken: Seen::Nothing,
            cluster: Err(String::new()),
        }
    }

    /// Looks at the file; `at_once` it is taken as it is. Whether it is taken otherwise than before.
    fn look(&mut self, path: &Path, name: &str, at_once: bool) -> bool {
        let now = Seen::at(path);
        let is_stable = at_once || self.seen == now;
        let is_new = at_once || self.taken != now;
        self.seen = now.clone();
        if !is_stable || !is_new {
            return false;
        }
        let cluster = match &now {
            Seen::Nothing => Err(String::new()),
            Seen::Unreadable(reason) => Err(reason.clone()),
            Seen::Content(_) => kubeconfig::from_file(path, None, name),
        };
        // It is read again for that, and may have been written meanwhile.
        self.seen = Seen::at(path);
        if self.seen != now && !at_once {
            return false;
        }
        let is_other = self.taken != now || self.cluster != cluster;
        self.taken = now;
        self.cluster = cluster;
        is_other
    }
}

impl Seen {
    fn at(path: &Path) -> Self {
        let unreadable = |reason: &str| Self::Unreadable(format!("{}: {reason}", path.display()));
        if is_pipe(path) {
            return unreadable("it is a pipe, and kubeconfigs are read more than once");
        }
        match bounded_file::read(path, bounded_file::SMALL) {
            Ok(content) => {
                let mut hasher = DefaultHasher::new();
                content.hash(&mut hasher);
                Self::Content(hasher.finish())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Nothing,
            Err(error) => unreadable(&format!(
                "it cannot be read: {error}; check the path and its permissions"
            )),
        }
    }
}

#[cfg(test)]
mod tests;

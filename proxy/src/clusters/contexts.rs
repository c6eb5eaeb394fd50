//! Which contexts kubeconfig files name: what a message about a context or a file has to tell.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::config::is_pipe;
use crate::serving_kubeconfig;

/// The contexts of kubeconfig files that are read as one.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// Files that can be opened.
    files: Vec<PathBuf>,
    /// Why others cannot.
    unread: Vec<String>,
    /// Contexts with the first file that names them.
    contexts: Vec<(String, PathBuf)>,
    /// Those of them that look like the one of a proxy's fleet.
    fleets: Vec<String>,
    /// Some file is no YAML of a kubeconfig: what it holds is not known.
    incomplete: bool,
}

#[derive(Deserialize)]
struct Names {
    contexts: Option<Vec<Name>>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
    #[serde(default)]
    context: Option<Context>,
}

#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    user: Option<String>,
}

impl Contexts {
    pub(super) fn read(paths: &[PathBuf]) -> Self {
        let mut it = Self::default();
        for path in paths {
            if is_pipe(path) {
                it.unread.push(format!(
                    "{}: it is a pipe, and kubeconfigs are read more than once; name a file",
                    path.display()
                ));
                continue;
            }
            match fs::read_to_string(path) {
                Ok(text) => it.add(path, &text),
                // Not in UTF-8: whoever reads it may know other encodings.
                Err(err) if err.kind() == ErrorKind::InvalidData => it.add(path, "\0"),
                Err(err) => it.unread.push(format!(
                    "{}: it cannot be read: {err}; check the path and its permissions",
                    path.display()
                )),
            }
        }
        it
    }

    fn add(&mut self, path: &Path, text: &str) {
        self.files.push(path.to_owned());
        let names = match serde_saphyr::from_str::<Option<Names>>(text) {
            Ok(names) => names.and_then(|it| it.contexts).unwrap_or_default(),
            Err(_) => {
                self.incomplete = true;
                return;
            }
        };
        for Name { name, context } in names {
            if self.file_of(&name).is_none() {
                let user = context.and_then(|it| it.user).unwrap_or_default();
                if serving_kubeconfig::is_named_as_fleet(&name, &user) {
                    self.fleets.push(name.clone());
                }
                self.contexts.push((name, path.to_owned()));
            }
        }
    }

    /// The files that can be opened.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Why others cannot.
    pub(super) fn unread(&self) -> Vec<String> {
        self.unread.clone()
    }

    /// Whether there is certainly no context.
    pub(super) fn is_empty(&self) -> bool {
        self.contexts.is_empty() && self.is_complete()
    }

    /// Whether the contexts of all files that can be opened are known.
    pub(super) fn is_complete(&self) -> bool {
        !self.incomplete
    }

    /// What to say of files without contexts.
    pub(super) fn without_contexts(&self) -> impl Iterator<Item = String> {
        self.files
            .iter()
            .map(|path| format!("{} has no contexts", path.display()))
    }

    /// The contexts' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.contexts.iter().map(|(name, _)| name.as_str())
    }

    /// Whether a context leads to a proxy's fleet, as the kubeconfig says that it writes, and not to a cluster.
    pub(super) fn is_fleet(&self, context: &str, server: &http::Uri) -> bool {
        self.fleets.iter().any(|it| it == context)
            && !server.path().ends_with(&format!("/clusters/{context}"))
    }

    /// The file that a context is of.
    pub(super) fn file_of(&self, context: &str) -> Option<&Path> {
        self.contexts
            .iter()
            .find(|(name, _)| name == context)
            .map(|(_, path)| path.as_path())
    }
}

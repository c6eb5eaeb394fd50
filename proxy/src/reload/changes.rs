//! What is different from what was in force, and its line in the log.

use std::collections::{BTreeMap, BTreeSet};

use super::keys;
use crate::clusters::FEW;
use crate::config::Config;
use crate::sources::Entry;

/// The headlines of the log: all was read again, or sources have told of clusters.
pub(super) const RELOADED: &str = "configuration reloaded";
pub(super) const TOLD: &str = "clusters changed";

/// What a reload changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Clusters that are new.
    pub(super) added: BTreeSet<String>,
    /// Clusters that are gone.
    pub(super) removed: BTreeSet<String>,
    /// Names under which there is another cluster than before: nothing of the old one may be left.
    pub(super) replaced: BTreeSet<String>,
    /// Clusters that are reached otherwise, or in other times.
    pub(super) updated: BTreeSet<String>,
    /// Clusters of which it only changed whether what their source says is accepted, which is told where it is found.
    pub(super) judged: BTreeSet<String>,
    /// Keys of the configuration that say something else.
    keys: Vec<String>,
    /// Keys whose files hold something else.
    pub(super) files: Vec<String>,
    needs_restart: Vec<(&'static str, String, String)>,
}

impl Changes {
    pub(super) fn of(
        before: &Config,
        now: &Config,
        clusters_before: &BTreeMap<String, Entry>,
        clusters_now: &BTreeMap<String, Entry>,
    ) -> Self {
        let mut changes = Self {
            keys: keys::different(before, now),
            ..Self::default()
        };
        let names = clusters_before.keys().chain(clusters_now.keys());
        for name in names {
            let list = match (clusters_before.get(name), clusters_now.get(name)) {
                (None, _) => &mut changes.added,
                (_, None) => &mut changes.removed,
                (Some(before), Some(now)) if !before.is_same(now) => &mut changes.replaced,
                (Some(before), Some(now)) if before.cluster != now.cluster => {
                    let mut judged = before.cluster.clone();
                    judged.rejected.clone_from(&now.cluster.rejected);
                    match judged == now.cluster {
                        true => &mut changes.judged,
                        false => &mut changes.updated,
                    }
                }
                (Some(_), Some(_)) => continue,
            };
            list.insert(name.clone());
        }
        let texts = |config: &Config| {
            let state_dir = config.state_dir.display().to_string();
            [
                ("listen", config.listen.to_string()),
                ("adminListen", config.admin_listen.to_string()),
                ("stateDir", state_dir),
            ]
        };
        for ((key, before), (_, now)) in texts(before).into_iter().zip(texts(now)) {
            if before != now {
                changes.needs_restart.push((key, before, now));
            }
        }
        changes
    }

    /// Keys that are read at the start alone, with what is in force and what is configured now.
    pub(super) fn needs_restart(&mut self) -> Vec<(&'static str, String, String)> {
        std::mem::take(&mut self.needs_restart)
    }

    /// Whether all is in force already, but for what needs a restart.
    fn is_empty(&self) -> bool {
        let Self {
            added,
            removed,
            replaced,
            updated,
            keys,
            files,
            judged: _,
            needs_restart: _,
        } = self;
        let clusters = [added, removed, replaced, updated];
        clusters.iter().all(|it| it.is_empty()) && keys.is_empty() && files.is_empty()
    }

    /// One line that says what is different now, if anything is or a configuration was read.
    pub(super) fn log(&self, headline: &str, clusters: usize) {
        if self.is_empty() {
            if headline == RELOADED {
                tracing::info!(clusters, "{headline}: nothing is different");
            }
            return;
        }
        tracing::info!(
            added = listed(&self.added),
            removed = listed(&self.removed),
            changed = listed(self.replaced.union(&self.updated)),
            keys = listed(&self.keys),
            files = listed(&self.files),
            clusters,
            "{headline}"
        );
    }
}

/// Names, such as `alpha, beta`, the first few of many; `-` where there are none.
fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.into_iter().map(String::as_str).collect();
    match names.len() {
        0 => "-".to_owned(),
        count if count > FEW => format!("{}, and {} others", names[..FEW].join(", "), count - FEW),
        _ => names.join(", "),
    }
}

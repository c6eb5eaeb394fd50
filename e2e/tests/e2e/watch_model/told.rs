//! What clients were told, so that nobody is told less later.

use std::collections::BTreeMap;

use rand::Rng as _;
use rand::rngs::StdRng;

use super::kinds::Kind;

/// How many versions of each kind are remembered for watches to begin with.
const REMEMBERED: usize = 200;

/// The newest that anybody was told of each kind.
#[derive(Default)]
pub(super) struct Told(BTreeMap<&'static str, OfKind>);

#[derive(Default)]
struct OfKind {
    newest: Moment,
    /// Versions of lists, events and bookmarks, with the epoch that they are of.
    versions: Vec<Moment>,
}

/// A version in an epoch; later epochs are later, whatever their versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) epoch: usize,
    pub(super) version: u64,
}

impl Told {
    /// Whoever begins to read from now on must not be shown less.
    pub(super) fn object(&mut self, kind: &Kind, at: Moment) {
        let of_kind = self.0.entry(kind.plural).or_default();
        of_kind.newest = of_kind.newest.max(at);
    }

    /// A version was told that a watch can begin with.
    pub(super) fn version(&mut self, kind: &Kind, at: Moment) {
        let versions = &mut self.0.entry(kind.plural).or_default().versions;
        if versions.len() == REMEMBERED {
            versions.remove(0);
        }
        versions.push(at);
    }

    /// What a read that begins now must not be older than.
    pub(super) fn newest(&self, kind: &Kind) -> Moment {
        self.0
            .get(kind.plural)
            .map(|of_kind| of_kind.newest)
            .unwrap_or_default()
    }

    /// A version to begin with, most often a late one.
    pub(super) fn any_version(&self, rng: &mut StdRng, kind: &Kind) -> Option<Moment> {
        let versions = &self.0.get(kind.plural)?.versions;
        let back = rng.random_range(0..versions.len().max(1));
        let back = rng.random_range(0..=back);
        versions.get(versions.len().checked_sub(back + 1)?).copied()
    }
}

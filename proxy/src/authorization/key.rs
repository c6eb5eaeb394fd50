//! What a decision is about.

use std::sync::Arc;

use fleetcache_auth::{Question, ResourceAttributes, UserInfo};

/// A question about a user, asked of the cluster that was behind a name at a time. Two questions are one only where all of
/// it is equal, part by part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// See `ClusterAccessor::instance`.
    pub(super) instance: u64,
    /// See `Connection::epoch`.
    pub(super) epoch: u64,
    /// Counts the changes of roles that the proxy has seen: what was asked before one is not found after it, also where the
    /// answer comes later.
    pub(super) changes: u64,
    pub(super) user: Arc<UserInfo>,
    pub(super) question: Question,
}

impl Key {
    /// About its bytes in memory, what the cache needs for it included.
    pub(super) fn weight(&self) -> u32 {
        const OVERHEAD: usize = 512;
        let user = self.user.bytes();
        u32::try_from(OVERHEAD + user + bytes(&self.question)).unwrap_or(u32::MAX)
    }
}

/// The bytes of its texts.
pub(super) fn bytes(question: &Question) -> usize {
    let of = |it: &ResourceAttributes| {
        let texts = [
            &it.group,
            &it.version,
            &it.resource,
            &it.namespace,
            &it.name,
        ];
        let selectors = [&it.field_selector, &it.label_selector];
        let selectors = selectors.into_iter().flatten();
        texts.into_iter().chain(selectors).map(String::len).sum()
    };
    match question {
        Question::Resource(attributes) => of(attributes),
        Question::NonResource(attributes) => attributes.path.len(),
    }
}

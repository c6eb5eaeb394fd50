//! Reading one kind: a range of it, at the newest revision or at an older one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::Store;
use crate::sim::object::Object;
use crate::sim::resource::Resource;
use crate::sim::selector::Selector;

/// What to read.
#[derive(Debug)]
pub(in crate::sim) struct PageRequest<'a> {
    pub(in crate::sim) resource: &'static Resource,
    /// Empty for all namespaces.
    pub(in crate::sim) namespace: &'a str,
    pub(in crate::sim) selector: &'a Selector,
    /// The exact revision, or the newest.
    pub(in crate::sim) at: Option<u64>,
    /// The last key of the page before, relative to the namespace. It comes from a client and may be anything.
    pub(in crate::sim) after: Option<&'a str>,
    pub(in crate::sim) limit: Option<usize>,
}

/// What was read.
#[derive(Debug)]
pub(in crate::sim) struct Page {
    pub(in crate::sim) revision: u64,
    pub(in crate::sim) items: Vec<Arc<Object>>,
    /// Set if more objects follow: the last key of this page, relative to the namespace.
    pub(in crate::sim) next: Option<String>,
    /// How many follow; unknown with a selector.
    pub(in crate::sim) remaining: Option<usize>,
}

impl Store {
    /// Reads one page, or `None` if its revision is forgotten or yet to come.
    pub(in crate::sim) fn page(&self, request: &PageRequest<'_>) -> Option<Page> {
        let state = self.lock();
        let newest = state.position.revision;
        let kind = state.kind(request.resource);
        match request.at {
            Some(revision) if revision > newest => None,
            Some(revision)
                if kind
                    .history
                    .after(revision)
                    .is_none_or(|mut later| later.next().is_some()) =>
            {
                let objects = kind.history.rewind(&kind.objects, revision)?;
                Some(read(&objects, request, revision))
            }
            at => Some(read(&kind.objects, request, at.unwrap_or(newest))),
        }
    }
}

fn read(objects: &BTreeMap<String, Arc<Object>>, request: &PageRequest<'_>, revision: u64) -> Page {
    let prefix = match request.namespace {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    let start = request.after.map(|after| format!("{prefix}{after}"));
    let start = match &start {
        Some(key) => Bound::Excluded(key.as_str()),
        None => Bound::Included(prefix.as_str()),
    };
    let mut range = objects
        .range::<str, _>((start, Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(&prefix));
    let limit = request.limit.unwrap_or(usize::MAX);
    let mut items = Vec::new();
    let mut last = None;
    for (key, object) in range.by_ref() {
        if request.selector.matches(object) {
            items.push(object.clone());
            if items.len() == limit {
                last = Some(key[prefix.len()..].to_owned());
                break;
            }
        }
    }
    // As in the real server, what follows is not held against the selector: the last page may be empty.
    let remaining = range.count();
    Page {
        revision,
        items,
        next: last.filter(|_| remaining > 0),
        remaining: (remaining > 0 && request.selector.is_empty()).then_some(remaining),
    }
}

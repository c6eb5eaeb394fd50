//! What a request is about, and what of the reference it sees.

use std::sync::Arc;

use bytes::Bytes;
use fleetcache_e2e::sim::{Changed, Object};
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::kinds::{APPS, KINDS, Kind, NAMES, NAMESPACES, NODES};
use super::log::State;

/// A kind, a namespace or all of them, and a selector.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) kind: &'static Kind,
    pub(super) namespace: Option<&'static str>,
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Everything,
    App(&'static str),
    NotApp(&'static str),
    AnyApp,
    Name(&'static str),
    Node(&'static str),
}

impl Selection {
    /// All objects of a kind.
    pub(super) fn all(kind: &'static Kind) -> Self {
        Self {
            kind,
            namespace: None,
            by: By::Everything,
        }
    }

    /// Half of them are of everything in one namespace or all.
    pub(super) fn random(rng: &mut StdRng) -> Self {
        Self::of_kind(KINDS.choose(rng).unwrap(), rng)
    }

    /// As above, of one kind.
    pub(super) fn of_kind(kind: &'static Kind, rng: &mut StdRng) -> Self {
        let app = APPS.choose(rng).unwrap();
        let by = match rng.random_range(0..10) {
            0..5 => By::Everything,
            5 => By::App(app),
            6 => By::NotApp(app),
            7 => By::AnyApp,
            8 => By::Name(NAMES.choose(rng).unwrap()),
            _ if kind.plural == "pods" => By::Node(NODES.choose(rng).unwrap()),
            _ => By::App(app),
        };
        Self {
            kind,
            namespace: rng
                .random_bool(0.4)
                .then(|| *NAMESPACES.choose(rng).unwrap()),
            by,
        }
    }

    /// Whether it takes a field that only this kind has. The simulated cluster refuses others of the kind, so that memory
    /// judges by none.
    pub(super) fn is_by_own_field(&self) -> bool {
        matches!(self.by, By::Node(_))
    }

    pub(super) fn has_selector(&self) -> bool {
        self.by != By::Everything
    }

    /// The path, with the selector and whatever else the query says.
    pub(super) fn target(&self, query: &[String]) -> String {
        let selector = match self.by {
            By::Everything => None,
            By::App(app) => Some(format!("labelSelector=app%3D{app}")),
            By::NotApp(app) => Some(format!("labelSelector=app%21%3D{app}")),
            By::AnyApp => Some("labelSelector=app".to_owned()),
            By::Name(name) => Some(format!("fieldSelector=metadata.name%3D{name}")),
            By::Node(node) => Some(format!("fieldSelector=spec.nodeName%3D{node}")),
        };
        let query: Vec<String> = query.iter().cloned().chain(selector).collect();
        let path = self.kind.collection(self.namespace);
        if query.is_empty() {
            path
        } else {
            format!("{path}?{}", query.join("&"))
        }
    }

    fn selects(&self, object: &Object) -> bool {
        let app = || object.labels.get("app").map(String::as_str);
        let selected = match self.by {
            By::Everything => true,
            By::App(wanted) => app() == Some(wanted),
            By::NotApp(other) => app() != Some(other),
            By::AnyApp => app().is_some(),
            By::Name(name) => object.name == name,
            By::Node(node) => object.value()["spec"]["nodeName"] == node,
        };
        selected
            && self
                .namespace
                .is_none_or(|namespace| object.namespace == namespace)
    }

    /// What is selected of a state, in the order of a list.
    pub(super) fn of<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a Arc<Object>> {
        state.values().filter(|object| self.selects(object))
    }

    /// The line that a watch shows of a change, if it shows one.
    pub(super) fn line(&self, change: &Changed) -> Option<Bytes> {
        let before = change
            .previous
            .as_ref()
            .filter(|previous| self.selects(previous));
        let now = !change.removed && self.selects(&change.object);
        match (before, now) {
            (None, true) => Some(event("ADDED", change.object.json())),
            (Some(_), true) => Some(event("MODIFIED", change.object.json())),
            (Some(_), false) if change.removed => Some(event("DELETED", change.object.json())),
            // The last state that was selected, at the version of the change.
            (Some(before), false) => {
                let old = format!(r#""resourceVersion":"{}""#, before.revision);
                let new = format!(r#""resourceVersion":"{}""#, change.revision);
                let json = str::from_utf8(before.json()).unwrap();
                assert_eq!(json.matches(&old).count(), 1, "{json}");
                Some(event("DELETED", json.replace(&old, &new).as_bytes()))
            }
            (None, false) => None,
        }
    }

    /// Whether a watch shows something of a change.
    pub(super) fn sees(&self, change: &Changed) -> bool {
        let before = change
            .previous
            .as_ref()
            .is_some_and(|previous| self.selects(previous));
        before || (!change.removed && self.selects(&change.object))
    }
}

/// The line of an event.
pub(super) fn event(kind: &str, object: &[u8]) -> Bytes {
    [
        br#"{"type":""#.as_slice(),
        kind.as_bytes(),
        br#"","object":"#,
        object,
        b"}",
    ]
    .concat()
    .into()
}

//! The objects of a list on its way to the client, or of the initial events of a watch.

use fleetcache_cache::continue_token::ContinueToken;
use fleetcache_cache::key_range::KeyRange;
use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::selector::Selector;
use fleetcache_cache::told_list::{Pairs, ToldList};

use super::seen::Meta;
use crate::query::query_pairs;

/// What a list has told so far.
#[derive(Debug)]
pub(super) struct ListReading {
    namespace: Option<String>,
    /// `None` where only the server knows what is selected.
    selector: Option<Selector>,
    start: Start,
    /// `None` once an object came without a name or version.
    pairs: Option<Pairs>,
    last_key: Option<String>,
    newest: Option<ResourceVersion>,
}

/// Where a page begins.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// With the first object.
    First,
    /// With this key.
    At(String),
    Unknown,
}

/// What a whole list tells beside the versions of its objects.
#[derive(Debug)]
pub(super) enum Told {
    /// What there is and what is not, in words that an informer understands.
    List(Box<ToldList>),
    /// What is not there is known to the server alone.
    Version(ResourceVersion),
    /// Nothing: what is missing may just not be selected.
    Nothing,
}

impl ListReading {
    /// None of the list yet that a query asks for.
    pub(super) fn of(namespace: Option<&str>, query: &str) -> Self {
        // The first value of a repeated parameter counts.
        let value = |name: &str| {
            let mut pairs = query_pairs(query);
            let found = pairs.find(|(key, _)| key == name);
            found.map(|(_, value)| value).unwrap_or_default()
        };
        let selector = Selector::parse(&value("labelSelector"), &value("fieldSelector"));
        let is_sharded = !value("shardSelector").is_empty();
        Self {
            namespace: namespace.map(str::to_owned),
            selector: selector.ok().filter(|_| !is_sharded),
            start: Start::of(&value("continue"), namespace),
            pairs: Some(Pairs::default()),
            last_key: None,
            newest: None,
        }
    }

    /// Takes the next object.
    pub(super) fn push(&mut self, object: &Meta) {
        let version = object.version();
        self.newest = self.newest.max(version);
        match (&mut self.pairs, object.key(), version) {
            (Some(pairs), Some(key), Some(version)) => {
                pairs.push(&key, version);
                self.last_key = Some(key);
            }
            _ => self.pairs = None,
        }
    }

    /// The newest version of an object so far.
    pub(super) fn newest(&self) -> Option<ResourceVersion> {
        self.newest
    }

    /// The list is whole; `list` is its own metadata.
    pub(super) fn end(self, list: &Meta) -> Told {
        let (Some(resource_version), Some(selector)) = (list.version(), self.selector) else {
            return Told::Nothing;
        };
        let mut keys = KeyRange::of_namespace(self.namespace.as_deref());
        match self.start {
            Start::First => {}
            Start::At(key) => keys = keys.starting_at(key),
            Start::Unknown => return Told::Version(resource_version),
        }
        let Some(pairs) = self.pairs else {
            return Told::Version(resource_version);
        };
        if list.continues {
            let Some(last) = self.last_key else {
                return Told::Nothing;
            };
            keys = keys.ending_with(last);
        }
        Told::List(Box::new(ToldList {
            keys,
            selector,
            pairs,
            resource_version,
        }))
    }
}

impl Start {
    /// Where a continue token says that a page begins.
    fn of(token: &str, namespace: Option<&str>) -> Self {
        if token.is_empty() {
            return Self::First;
        }
        let token = ContinueToken::parse(token);
        token.map_or(Self::Unknown, |token| Self::At(token.first_key(namespace)))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    use super::*;

    fn meta(namespace: &str, name: &str, resource_version: &str) -> Meta {
        Meta {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            resource_version: resource_version.to_owned(),
            ..Meta::default()
        }
    }

    fn end(mut list: ListReading, objects: &[Meta], own: &Meta) -> String {
        for object in objects {
            list.push(object);
        }
        match list.end(own) {
            Told::List(list) => format!("{:?} at {}", list.keys, list.resource_version),
            Told::Version(version) => format!("version {version}"),
            Told::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn a_list_tells_of_the_keys_that_it_covers() {
        let own = meta("", "", "9");
        let page = Meta {
            continues: true,
            ..own.clone()
        };
        let objects = [meta("ns", "a", "5"), meta("ns", "b", "6")];
        let token =
            |json: &str| format!("limit=2&continue={}", BASE64_URL_SAFE_NO_PAD.encode(json));
        let in_namespace = token(r#"{"v":"meta.k8s.io/v1","rv":9,"start":"/a\u0000"}"#);
        let everywhere = token(r#"{"v":"meta.k8s.io/v1","rv":9,"start":"/ns/a\u0000"}"#);
        let all = KeyRange::of_namespace(None);
        let ns = KeyRange::of_namespace(Some("ns"));
        let behind_a = "ns/a\0".to_owned();
        for (namespace, query, own, keys) in [
            (None, "", &own, all.clone()),
            (Some("ns"), "labelSelector=a%3Db", &own, ns.clone()),
            (
                None,
                "limit=2",
                &page,
                all.clone().ending_with("ns/b".to_owned()),
            ),
            (
                Some("ns"),
                &in_namespace,
                &own,
                ns.starting_at(behind_a.clone()),
            ),
            (
                None,
                &everywhere,
                &page,
                all.starting_at(behind_a).ending_with("ns/b".to_owned()),
            ),
        ] {
            let told = end(ListReading::of(namespace, query), &objects, own);
            assert_eq!(told, format!("{keys:?} at 9"), "{namespace:?} {query}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_told_as_a_version_or_not_at_all() {
        let (own, a) = (meta("", "", "9"), meta("ns", "a", "5"));
        for (query, objects, own, expected) in [
            ("continue=zzz", vec![a.clone()], &own, "version 9"),
            ("", vec![a.clone(), Meta::default()], &own, "version 9"),
            ("fieldSelector=foo", vec![a.clone()], &own, "nothing"),
            ("shardSelector=x", vec![a.clone()], &own, "nothing"),
            ("", vec![a.clone()], &meta("", "", ""), "nothing"),
        ] {
            assert_eq!(
                end(ListReading::of(None, query), &objects, own),
                expected,
                "{query}"
            );
        }
        let mut list = ListReading::of(None, "shardSelector=x");
        list.push(&a);
        list.push(&meta("ns", "b", "3"));
        assert_eq!(list.newest(), ResourceVersion::parse("5"));
    }
}

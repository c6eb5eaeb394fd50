//! One random read, and whether it shows less than somebody knew.

use fleetcache_e2e::client::Answer;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::kinds::{KINDS, Kind, NAMES};
use super::{World, wire};
use crate::forward::{Begun, Shown};

/// How new the answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freshness {
    /// `resourceVersion` unset: nothing older than anybody was told.
    Latest,
    /// `resourceVersion=0`: any state.
    Any,
    /// A version that somebody was told.
    NotOlderThan(u64),
}

/// What a read asks for, beside the kind.
struct Read<'w> {
    kind: &'static Kind,
    version: usize,
    namespace: Option<&'w str>,
    name: Option<&'static str>,
    freshness: Freshness,
    /// A part of the list, which says nothing of what it lacks.
    part: bool,
    representation: &'static str,
    query: String,
}

impl World {
    /// Reads something through the proxy.
    pub(super) async fn read(&self, rng: &mut StdRng) -> Result<(), String> {
        let read = self.choose_read(rng);
        let path = match read.name {
            Some(name) => format!(
                "{}/{name}{}",
                read.kind.collection(read.version, read.namespace),
                read.query
            ),
            None => format!(
                "{}{}",
                read.kind.collection(read.version, read.namespace),
                read.query
            ),
        };
        let mut headers = vec![("accept", accept(read.representation, read.name.is_none()))];
        if rng.random_bool(0.05) {
            headers.push(("cache-control", "no-store"));
        }
        let client = self.proxied.choose(rng).unwrap();
        let begun = self.view.begin();
        // The cluster may be away; then nobody is told anything.
        let Ok(answer) = client.get_with(&path, &headers).await else {
            return Ok(());
        };
        self.tally.count_read(
            read.kind.storage,
            if read.name.is_some() { "get" } else { "list" },
            match read.freshness {
                Freshness::Latest => "unset",
                Freshness::Any => "0",
                Freshness::NotOlderThan(_) => "N",
            },
            read.representation,
            &answer,
        );
        let what = format!("GET {path} {headers:?} ({})", answer.cache_status());
        self.judge(&read, &begun, &answer, &what)
            .map_err(|why| format!("{what}: {why}"))
    }

    fn choose_read(&self, rng: &mut StdRng) -> Read<'_> {
        let kind = KINDS.choose(rng).unwrap();
        let name = rng.random_bool(0.5).then(|| *NAMES.choose(rng).unwrap());
        let everywhere = name.is_none() && rng.random_bool(0.3);
        let namespace = self.namespaces.choose(rng).unwrap().as_str();
        let freshness = match rng.random_range(0..10) {
            0..=6 => Freshness::Latest,
            7..=8 => Freshness::Any,
            _ => Freshness::NotOlderThan(self.view.newest(kind.storage)),
        };
        let mut query = match freshness {
            Freshness::Latest | Freshness::NotOlderThan(0) => String::new(),
            Freshness::Any => "resourceVersion=0".to_owned(),
            Freshness::NotOlderThan(version) => format!("resourceVersion={version}"),
        };
        let mut part = false;
        if name.is_none() {
            let more = match rng.random_range(0..10) {
                0..=1 => "labelSelector=n%3D1",
                2 => "fieldSelector=metadata.name%3Da",
                3 if freshness == Freshness::Latest => "limit=2",
                _ => "",
            };
            part = !more.is_empty();
            if part && !query.is_empty() {
                query.push('&');
            }
            query.push_str(more);
        }
        if !query.is_empty() {
            query.insert(0, '?');
        }
        let representation = match rng.random_range(0..20) {
            0..=9 => "json",
            10..=11 => "table",
            12..=14 => "metadata",
            _ if kind.built_in => "protobuf",
            _ => "json",
        };
        Read {
            kind,
            version: rng.random_range(0..kind.versions.len()),
            namespace: (!everywhere).then_some(namespace),
            name,
            freshness,
            part,
            representation,
            query,
        }
    }

    fn judge(
        &self,
        read: &Read<'_>,
        begun: &Begun,
        answer: &Answer,
        what: &str,
    ) -> Result<(), String> {
        let strict = read.freshness == Freshness::Latest;
        let storage = read.kind.storage;
        if let (404, Some(name), Some(namespace)) =
            (answer.status.as_u16(), read.name, read.namespace)
        {
            // A 404 of a kind that is not served yet names nothing.
            let names_it = answer
                .json()
                .is_ok_and(|status| status["details"]["name"] == name);
            return if strict && names_it {
                self.view
                    .missed(begun, &read.kind.key(namespace, name), what)
            } else {
                Ok(())
            };
        }
        if answer.status != 200 {
            return self.excusable(answer);
        }
        let shown = wire::shown(answer)
            .ok_or_else(|| format!("not an answer of objects: {}", answer.text()))?;
        for object in shown.iter().filter(|object| self.is_ours(object)) {
            if strict {
                self.view.saw(begun, storage, object, what)?;
            } else {
                self.view.told(storage, object, what);
            }
        }
        if answer.is_hit()
            && read.name.is_none()
            && let Some(version) = wire::list_version(answer)
        {
            let mut collection = read.kind.collection(read.version, None);
            // Of an informer of its own.
            if read.representation == "protobuf" {
                collection += read.representation;
            }
            self.view.complete(begun, &collection, version)?;
        }
        if strict && read.name.is_none() && !read.part {
            for namespace in &self.namespaces {
                if read.namespace.is_some_and(|asked| asked != namespace) {
                    continue;
                }
                for key in read.kind.keys(namespace) {
                    if !shown.iter().any(|object| object.key(storage) == key) {
                        self.view.missed(begun, &key, what)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_ours(&self, object: &Shown) -> bool {
        self.namespaces.contains(&object.namespace)
    }

    /// An apiserver that comes and goes answers all sorts of errors; one that stays, none.
    fn excusable(&self, answer: &Answer) -> Result<(), String> {
        if self.restarts {
            return Ok(());
        }
        Err(format!("{}: {}", answer.status, answer.text()))
    }
}

fn accept(representation: &str, list: bool) -> &'static str {
    match (representation, list) {
        ("table", _) => "application/json;as=Table;v=v1;g=meta.k8s.io",
        ("metadata", true) => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ("metadata", false) => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ("protobuf", _) => "application/vnd.kubernetes.protobuf",
        _ => "application/json",
    }
}

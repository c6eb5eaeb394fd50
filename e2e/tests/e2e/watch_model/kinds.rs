//! What is written, and how a kind's answers look on the wire.

use fleetcache_e2e::sim::Object;
use serde_json::{Value, json};

/// Two of them stand in another order as text than as words: `-` comes before `/`.
pub(super) const NAMESPACES: [&str; 3] = ["team", "team-b", "other"];

/// Few, so that names are often made again.
pub(super) const NAMES: [&str; 5] = ["a", "b", "b-1", "c", "d"];

/// Values of the label that selectors look at; an object may have none.
pub(super) const APPS: [&str; 3] = ["web", "db", "batch"];

/// Values of the field that selectors look at.
pub(super) const NODES: [&str; 2] = ["n1", "n2"];

/// One kind of the simulated cluster.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) base: &'static str,
    /// Alphabetical, and with its kind in list items.
    pub(super) custom: bool,
    /// What its encoder adds to an empty object in a bookmark.
    pub(super) empty: &'static str,
}

/// A plain kind, one whose deletion is two events and that has fields to select by, and a custom resource.
pub(super) static KINDS: [Kind; 3] = [
    Kind {
        plural: "configmaps",
        kind: "ConfigMap",
        api_version: "v1",
        base: "/api/v1",
        custom: false,
        empty: "",
    },
    Kind {
        plural: "pods",
        kind: "Pod",
        api_version: "v1",
        base: "/api/v1",
        custom: false,
        empty: r#","spec":{"containers":null},"status":{}"#,
    },
    Kind {
        plural: "widgets",
        kind: "Widget",
        api_version: "example.com/v1",
        base: "/apis/example.com/v1",
        custom: true,
        empty: "",
    },
];

impl Kind {
    /// The collection in a namespace, or everywhere.
    pub(super) fn collection(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.base, self.plural),
            None => format!("{}/{}", self.base, self.plural),
        }
    }

    /// A new object. `n` is never used twice, so that its bytes tell the write, in whatever epoch it was.
    pub(super) fn object(
        &self,
        namespace: &str,
        name: &str,
        n: u64,
        app: Option<&str>,
        size: usize,
    ) -> Value {
        let mut object = json!({
            "apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"namespace": namespace, "name": name, "annotations": {"n": n.to_string()}},
        });
        if let Some(app) = app {
            object["metadata"]["labels"] = json!({"app": app});
        }
        let filler = "x".repeat(size);
        match self.plural {
            "configmaps" => object["data"] = json!({"filler": filler}),
            "pods" => {
                let node = NODES[usize::try_from(n).unwrap_or(0) % NODES.len()];
                let container = json!({"name": "c", "image": filler});
                object["spec"] = json!({"nodeName": node, "containers": [container]});
            }
            _ => object["spec"] = json!({"filler": filler}),
        }
        object
    }

    /// An object as it stands in a list.
    pub(super) fn item<'a>(&self, object: &'a Object) -> (&'static str, &'a [u8]) {
        let json = object.json();
        if self.custom {
            return ("", json);
        }
        let prefix = format!(
            r#"{{"kind":"{}","apiVersion":"{}","#,
            self.kind, self.api_version
        );
        assert!(json.starts_with(prefix.as_bytes()));
        ("{", &json[prefix.len()..])
    }

    /// A whole list.
    pub(super) fn list<'a>(
        &self,
        objects: impl Iterator<Item = &'a Object>,
        metadata: &ListMetadata,
    ) -> Vec<u8> {
        let mut items = Vec::new();
        for object in objects {
            if !items.is_empty() {
                items.push(b',');
            }
            let (open, rest) = self.item(object);
            items.extend_from_slice(open.as_bytes());
            items.extend_from_slice(rest);
        }
        let (api_version, kind) = (self.api_version, self.kind);
        let metadata = metadata.text(self.custom);
        let (head, tail) = if self.custom {
            (
                format!(r#"{{"apiVersion":"{api_version}","items":["#),
                format!(r#"],"kind":"{kind}List","metadata":{metadata}}}"#),
            )
        } else {
            (
                format!(
                    r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{metadata},"items":["#
                ),
                "]}".to_owned(),
            )
        };
        [head.as_bytes(), &items, tail.as_bytes(), b"\n"].concat()
    }

    /// The line of a watch that says how far it is.
    pub(super) fn bookmark(&self, revision: u64, initial: bool) -> String {
        let (api_version, kind) = (self.api_version, self.kind);
        let mark = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
        let version = format!(r#""resourceVersion":"{revision}""#);
        let object = match (self.custom, initial) {
            (true, true) => format!(
                r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{{mark},{version}}}}}"#
            ),
            (true, false) => format!(
                r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{{version}}}}}"#
            ),
            (false, _) => {
                let mark = if initial {
                    format!(",{mark}")
                } else {
                    String::new()
                };
                let empty = self.empty;
                format!(
                    r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{{version}{mark}}}{empty}}}"#
                )
            }
        };
        format!(r#"{{"type":"BOOKMARK","object":{object}}}"#)
    }
}

/// The metadata of a list or of one of its pages.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ListMetadata {
    pub(super) version: u64,
    pub(super) token: Option<String>,
    pub(super) remaining: Option<u64>,
}

impl ListMetadata {
    /// Reads it from a body; `None` if this is no list.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        let list: Value = serde_json::from_slice(body).ok()?;
        list["items"].as_array()?;
        let metadata = &list["metadata"];
        let token = metadata["continue"].as_str().unwrap_or_default();
        Some(Self {
            version: metadata["resourceVersion"].as_str()?.parse().ok()?,
            token: (!token.is_empty()).then(|| token.to_owned()),
            remaining: metadata["remainingItemCount"].as_u64(),
        })
    }

    fn text(&self, custom: bool) -> String {
        let version = format!(r#""resourceVersion":"{}""#, self.version);
        let token = self
            .token
            .as_ref()
            .map(|token| format!(r#""continue":"{token}""#));
        let remaining = self
            .remaining
            .map(|remaining| format!(r#""remainingItemCount":{remaining}"#));
        let fields = if custom {
            let token = token.unwrap_or_else(|| r#""continue":"""#.to_owned());
            [Some(token), remaining, Some(version)]
        } else {
            [Some(version), token, remaining]
        };
        let fields: Vec<String> = fields.into_iter().flatten().collect();
        format!("{{{}}}", fields.join(","))
    }
}

//! One random write, and what its answer tells.

use fleetcache_e2e::client::{Answer, Client};
use http::Method;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use super::kinds::{KINDS, Kind, NAMES};
use super::{Turn, World, wire};
use crate::forward::Key;

/// A write as it is sent, and what it may do.
struct Write {
    method: Method,
    path: String,
    content_type: &'static str,
    body: Option<Value>,
    /// What it may delete.
    deletes: Vec<Key>,
}

impl Write {
    /// Asked for by the path, or by the options of a DELETE in its body.
    fn is_dry_run(&self) -> bool {
        let in_body = self
            .body
            .as_ref()
            .is_some_and(|body| body["dryRun"].is_array());
        in_body || self.path.contains("dryRun")
    }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

impl World {
    /// Writes something, mostly through the proxy.
    pub(super) async fn write(&self, rng: &mut StdRng, turn: Turn) {
        let any = KINDS.choose(rng).unwrap();
        let kind = if rng.random_bool(0.8) { turn.busy } else { any };
        let namespace = self.namespaces.choose(rng).unwrap().as_str();
        let name = *NAMES.choose(rng).unwrap();
        let write = if rng.random_bool(0.1) {
            self.replacement(rng, kind, namespace, name).await
        } else {
            let exists = self.view.exists(&kind.key(namespace, name));
            choose(rng, kind, namespace, name, exists)
        };
        let Some(mut write) = write else { return };
        if rng.random_bool(0.08) {
            let separator = if write.path.contains('?') { '&' } else { '?' };
            write.path = format!("{}{separator}dryRun=All", write.path);
        }
        let proxied = !turn.past && rng.random_bool(0.7);
        let client = if proxied {
            self.proxied.choose(rng).unwrap()
        } else {
            &self.direct
        };
        self.send(kind, &write, client, proxied).await;
    }

    /// A PUT of what the cluster holds, changed: it may have changed meanwhile, which is a conflict.
    async fn replacement(
        &self,
        rng: &mut StdRng,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Option<Write> {
        let version = rng.random_range(0..kind.versions.len());
        let path = format!("{}/{name}", kind.collection(version, Some(namespace)));
        let answer = self.direct.get(&path).await.ok()?.ok().ok()?;
        let mut object = answer.json().ok()?;
        object["metadata"]["labels"] = json!({"n": "1", "put": rng.random::<u16>().to_string()});
        Some(Write {
            method: Method::PUT,
            path,
            content_type: JSON,
            body: Some(object),
            // Of one that waits for its finalizers only, any update finds that there are none left.
            deletes: vec![kind.key(namespace, name)],
        })
    }

    async fn send(&self, kind: &Kind, write: &Write, client: &Client, proxied: bool) {
        let begun = self.view.begin();
        self.view.deleting(&write.deletes);
        let headers = [("content-type", write.content_type), ("accept", JSON)];
        let body = write
            .body
            .as_ref()
            .map(Value::to_string)
            .unwrap_or_default();
        let answer = client
            .send(write.method.clone(), &write.path, &headers, body)
            .await;
        if let (Ok(answer), true) = (&answer, proxied)
            && answer.status.is_success()
            && !write.is_dry_run()
        {
            self.written(kind, write, answer, &begun);
        }
        if let Ok(answer) = &answer {
            self.tally.count_write(answer.status.as_u16());
        }
        let refused_or_done = answer
            .as_ref()
            .is_ok_and(|answer| answer.status.as_u16() < 500);
        self.view
            .deletion_answered(&write.deletes, proxied && refused_or_done);
    }

    /// What a write's answer tells whoever gets it.
    fn written(&self, kind: &Kind, write: &Write, answer: &Answer, begun: &crate::forward::Begun) {
        let Ok(json) = answer.json() else { return };
        let what = format!("{} {}", write.method, write.path);
        if json["kind"] == "Status" {
            // Of a deletion, with the uid; of an eviction or a binding, with nothing.
            if let (Some(uid), [key]) = (json["details"]["uid"].as_str(), &write.deletes[..])
                && write.method == Method::DELETE
                && answer.status == 200
            {
                self.view.deleted(key, uid, &what);
            }
            return;
        }
        let Some(shown) = wire::object(&json) else {
            return;
        };
        if write.method == Method::POST {
            self.view.created(begun, kind.storage, &shown, &what);
        } else {
            self.view.told(kind.storage, &shown, &what);
        }
        let meta = &json["metadata"];
        let begun_to_go = meta["deletionTimestamp"].is_string();
        let kept = meta["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
            || meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) != 0;
        let gone = match write.method {
            Method::DELETE => !(begun_to_go && kept),
            _ => begun_to_go && !kept,
        };
        // A Scale has its parent's metadata but not its finalizers.
        if gone && json["kind"] != "Scale" {
            self.view
                .deleted(&shown.key(kind.storage), &shown.uid, &what);
        }
    }
}

/// Any write but a PUT of what was read. What `exists` is seldom made again, and what does not seldom changed: refused writes
/// prove little, and keep the kind from memory for a while.
fn choose(
    rng: &mut StdRng,
    kind: &Kind,
    namespace: &str,
    name: &str,
    exists: bool,
) -> Option<Write> {
    let version = rng.random_range(0..kind.versions.len());
    let collection = kind.collection(version, Some(namespace));
    let path = format!("{collection}/{name}");
    let n: u32 = rng.random_range(0..1000);
    let own = vec![kind.key(namespace, name)];
    let patch = |path: String, content_type: &'static str, body: Value| Write {
        method: Method::PATCH,
        path,
        content_type,
        body: Some(body),
        deletes: own.clone(),
    };
    let labels =
        json!({"metadata": {"labels": {"n": (n % 2).to_string(), "patched": n.to_string()}}});
    let dice = match (exists, rng.random_bool(0.9)) {
        (true, true) => rng.random_range(30..100),
        (false, true) => 0,
        (_, false) => rng.random_range(0..100),
    };
    Some(match dice {
        0..=29 => {
            let mut object = kind.object(version, namespace, name, n);
            if rng.random_bool(0.25) {
                object["metadata"]["finalizers"] = json!(["example.com/wait"]);
            }
            Write {
                method: Method::POST,
                path: collection,
                content_type: JSON,
                body: Some(object),
                deletes: Vec::new(),
            }
        }
        30..=44 => patch(path, MERGE, labels),
        45..=47 => patch(
            path,
            "application/json-patch+json",
            json!([{"op": "add", "path": "/metadata/labels", "value": {"n": "0", "json": n.to_string()}}]),
        ),
        48..=50 if kind.built_in => patch(path, "application/strategic-merge-patch+json", labels),
        51..=54 => {
            let mut object = kind.object(version, namespace, name, n);
            object["metadata"]["labels"]["applied"] = json!(n.to_string());
            patch(
                format!("{path}?fieldManager=m{}&force=true", n % 3),
                "application/apply-patch+yaml",
                object,
            )
        }
        55..=61 if kind.status => {
            let status = if kind.storage == "pods" {
                json!({"message": n.to_string()})
            } else {
                json!({"replicas": n})
            };
            patch(format!("{path}/status"), MERGE, json!({"status": status}))
        }
        62..=67 if kind.scale => patch(
            format!("{path}/scale"),
            MERGE,
            json!({"spec": {"replicas": n % 7}}),
        ),
        68..=76 => patch(path, MERGE, json!({"metadata": {"finalizers": null}})),
        77..=91 => delete(rng, path, own),
        92..=94 => Write {
            method: Method::DELETE,
            path: if n.is_multiple_of(2) {
                format!("{collection}?labelSelector=n%3D1")
            } else {
                collection
            },
            content_type: JSON,
            body: None,
            deletes: kind.keys(namespace),
        },
        95..=97 if kind.storage == "pods" => Write {
            method: Method::POST,
            path: format!("{path}/eviction"),
            content_type: JSON,
            body: Some(
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}),
            ),
            deletes: own,
        },
        98..=99 if kind.storage == "pods" => {
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "node-1"}});
            Write {
                method: Method::POST,
                path: if n.is_multiple_of(2) {
                    format!("{path}/binding")
                } else {
                    format!("/api/v1/namespaces/{namespace}/bindings")
                },
                content_type: JSON,
                body: Some(binding),
                deletes: Vec::new(),
            }
        }
        _ => return None,
    })
}

fn delete(rng: &mut StdRng, path: String, own: Vec<Key>) -> Write {
    let (path, body) = match rng.random_range(0..7) {
        0 => (format!("{path}?gracePeriodSeconds=0"), None),
        1 => (format!("{path}?propagationPolicy=Foreground"), None),
        2 => (format!("{path}?propagationPolicy=Orphan"), None),
        3 => (
            path,
            Some(json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})),
        ),
        4 => (path, Some(json!({"dryRun": ["All"]}))),
        _ => (path, None),
    };
    Write {
        method: Method::DELETE,
        path,
        content_type: JSON,
        body,
        deletes: own,
    }
}

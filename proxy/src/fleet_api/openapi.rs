//! The OpenAPI v3 document of the fleet's group version, for `kubectl explain` and for whoever makes types of it.

use serde_json::{Map, Value, json};

use super::{GROUP, KIND, RESOURCE, VERSION};

/// Its path below `/openapi/v3/`.
pub(super) const PATH: &str = "apis/fleetcache.dev/v1alpha1";

/// The whole document.
pub(super) fn document() -> Value {
    let schemas = "#/components/schemas/";
    let kind = |kind: &str| json!({"group": GROUP, "version": VERSION, "kind": kind});
    let answer = |schema: &str| {
        let schema = json!({"$ref": format!("{schemas}{schema}")});
        json!({"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}})
    };
    let get = |id: &str, action: &str, description: &str, schema: &str, parameters: Value| {
        json!({
            "operationId": id,
            "description": description,
            "tags": ["fleetcacheDev_v1alpha1"],
            "parameters": parameters,
            "responses": answer(schema),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind(KIND),
        })
    };
    let name = json!([{"name": "name", "in": "path", "required": true, "description": "name of the ClusterConnection", "schema": {"type": "string", "uniqueItems": true}}]);
    let list = get(
        "listFleetcacheDevV1alpha1ClusterConnection",
        "list",
        "list or watch objects of kind ClusterConnection",
        LIST,
        list_parameters(),
    );
    let read = get(
        "readFleetcacheDevV1alpha1ClusterConnection",
        "get",
        "read the specified ClusterConnection",
        OBJECT,
        name,
    );
    let path = format!("/{PATH}/{RESOURCE}");
    json!({
        "openapi": "3.0.0",
        "info": {"title": "fleetcache", "version": VERSION},
        "paths": {
            path.as_str(): {"get": list},
            format!("{path}/{{name}}"): {"get": read},
        },
        "components": {"schemas": {
            OBJECT: object(&kind(KIND)),
            LIST: {
                "description": "ClusterConnectionList is a list of ClusterConnection",
                "type": "object",
                "required": ["items"],
                "properties": {
                    "apiVersion": text("APIVersion defines the versioned schema of this representation of an object."),
                    "kind": text("Kind is a string value representing the REST resource this object represents."),
                    "metadata": {"type": "object", "description": "Standard list metadata."},
                    "items": {"type": "array", "description": "List of clusterconnections.", "items": {"$ref": format!("{schemas}{OBJECT}")}},
                },
                "x-kubernetes-group-version-kind": [kind("ClusterConnectionList")],
            },
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
                "description": "ObjectMeta is metadata that all persisted resources must have.",
                "type": "object",
                "properties": {
                    "creationTimestamp": time("When the proxy took the cluster in."),
                    "labels": {"type": "object", "description": "The cluster's labels, from its source.", "additionalProperties": {"type": "string"}},
                    "name": text("The cluster's name, as in /clusters/<name>."),
                    "resourceVersion": text("The version of the object; figures do not move it."),
                    "uid": text("The same for the same cluster out of the same source."),
                },
            },
        }},
    })
}

const OBJECT: &str = "dev.fleetcache.v1alpha1.ClusterConnection";
const LIST: &str = "dev.fleetcache.v1alpha1.ClusterConnectionList";

fn object(kind: &Value) -> Value {
    let condition = object_of(
        "One aspect of the cluster's state.",
        &[
            (
                "lastTransitionTime",
                time("When the condition last became what it is."),
            ),
            ("message", text("For people.")),
            ("reason", text("For machines.")),
            ("status", text("True, False or Unknown.")),
            (
                "type",
                text(
                    "Connected: requests reach the cluster. RemoteConnectionProbe: a probe has succeeded lately.",
                ),
            ),
        ],
    );
    let error = object_of(
        "What went wrong last.",
        &[("message", text("In words.")), ("time", time("When."))],
    );
    let informer = object_of(
        "One kind in memory.",
        &[
            (
                "bytes",
                number(
                    "Bytes of its objects, of their recent changes and of what is kept for pages.",
                ),
            ),
            (
                "encoding",
                text("In which encoding its objects are held: json or protobuf."),
            ),
            ("group", text("The API group; absent for the core group.")),
            ("lastError", error),
            (
                "lastHeardTime",
                time("When the server was last heard on its connection."),
            ),
            ("objects", number("Objects held.")),
            (
                "reason",
                text("Why the kind stays live, where it is Refused."),
            ),
            ("resource", text("The plural name.")),
            (
                "resourceVersion",
                text("The version through which it is complete."),
            ),
            ("state", text("Syncing, Synced, Resuming or Refused.")),
            ("version", text("The API version.")),
            ("watchers", number("Open watches.")),
        ],
    );
    let totals = object_of(
        "Over all informers.",
        &[
            ("bytes", number("Their bytes.")),
            ("informers", number("Informers that run.")),
            ("memory", text("The same bytes as a quantity, rounded up.")),
            ("objects", number("Objects held.")),
            ("watchers", number("Open watches.")),
        ],
    );
    let status = object_of(
        "How the cluster is. Times of probes and what informers hold are those of the moment of the answer.",
        &[
            (
                "conditions",
                list_of(
                    "Connected, RemoteConnectionProbe and ConfigurationAccepted.",
                    &condition,
                ),
            ),
            (
                "consecutiveFailures",
                number("Failed connects or probes in a row."),
            ),
            (
                "epoch",
                number("Counts the clusters that were behind the name."),
            ),
            ("generation", number("Counts the connections.")),
            ("hint", text("What may help against what is wrong.")),
            (
                "informers",
                list_of(
                    "Each kind that is kept in memory, or known not to be.",
                    &informer,
                ),
            ),
            (
                "lastProbeSuccessTime",
                time("When a probe or a connect last succeeded."),
            ),
            (
                "lastProbeTime",
                time("When the last probe or connect ended, well or not."),
            ),
            ("message", text("What is wrong, in a sentence.")),
            ("nextAttemptTime", time("When the next connect is tried.")),
            ("reason", text("What is wrong, in a word.")),
            (
                "serverVersion",
                text("What the server called its version when it was asked last."),
            ),
            (
                "state",
                text(
                    "Pending, Connecting (for the first time), Connected, Degraded or Disconnected.",
                ),
            ),
            ("totals", totals),
        ],
    );
    let source = object_of(
        "Who named the cluster.",
        &[
            ("kind", text("Kubeconfig, Directory, ClusterAPI or Secret.")),
            ("name", text("The file, or namespace/name.")),
        ],
    );
    let spec = object_of(
        "What is configured of the cluster.",
        &[
            ("connect", text("Always or OnDemand.")),
            ("context", text("The kubeconfig context that it came from.")),
            ("source", source),
        ],
    );
    let metadata = json!({
        "description": "Standard object's metadata.",
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
    });
    let mut object = object_of(
        "ClusterConnection is one cluster of the fleet and the state of the proxy's connection to it. It can be read and watched, and not be changed.",
        &[
            (
                "apiVersion",
                text(
                    "APIVersion defines the versioned schema of this representation of an object.",
                ),
            ),
            (
                "kind",
                text(
                    "Kind is a string value representing the REST resource this object represents.",
                ),
            ),
            ("metadata", metadata),
            ("spec", spec),
            ("status", status),
        ],
    );
    object["x-kubernetes-group-version-kind"] = json!([kind]);
    object
}

fn list_parameters() -> Value {
    let parameter = |(name, kind, description): (&str, &str, &str)| json!({"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": true}});
    let parameters = [
        (
            "allowWatchBookmarks",
            "boolean",
            "asks a watch for bookmarks",
        ),
        ("continue", "string", "goes on with the next page of a list"),
        ("fieldSelector", "string", "metadata.name is the only field"),
        ("labelSelector", "string", "selects by labels"),
        ("limit", "integer", "the most objects of a page"),
        ("resourceVersion", "string", "the version that is asked for"),
        ("resourceVersionMatch", "string", "Exact or NotOlderThan"),
        (
            "sendInitialEvents",
            "boolean",
            "begins a watch with the state",
        ),
        ("timeoutSeconds", "integer", "how long a watch lasts"),
        ("watch", "boolean", "watches instead of listing"),
    ];
    Value::from(parameters.map(parameter).to_vec())
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn list_of(description: &str, items: &Value) -> Value {
    json!({"type": "array", "description": description, "items": items})
}

fn object_of(description: &str, properties: &[(&str, Value)]) -> Value {
    let properties = properties.iter().cloned();
    let properties: Map<_, _> = properties.map(|(name, it)| (name.to_owned(), it)).collect();
    json!({"type": "object", "description": description, "properties": properties})
}

//! Tables: what `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::json;
use super::object::Object;
use super::representation::{Include, encode_metadata};
use super::resource::Resource;

/// The end of a table's body.
pub(super) const CLOSE: &[u8] = b"]}";

/// A column: its name, type and priority; those above 0 show with `-o wide`.
type Column = (&'static str, &'static str, u8);

const NAME: Column = ("Name", "string", 0);
const AGE: Column = ("Age", "string", 0);

fn columns(resource: &Resource) -> &'static [Column] {
    match resource.plural {
        "pods" => &[
            NAME,
            ("Ready", "string", 0),
            ("Status", "string", 0),
            ("Restarts", "string", 0),
            AGE,
            ("IP", "string", 1),
            ("Node", "string", 1),
        ],
        "nodes" => &[
            NAME,
            ("Status", "string", 0),
            ("Roles", "string", 0),
            AGE,
            ("Version", "string", 0),
        ],
        "namespaces" => &[NAME, ("Status", "string", 0), AGE],
        "deployments" => &[
            NAME,
            ("Ready", "string", 0),
            ("Up-to-date", "string", 0),
            ("Available", "string", 0),
            AGE,
        ],
        "configmaps" => &[NAME, ("Data", "string", 0), AGE],
        "secrets" => &[NAME, ("Type", "string", 0), ("Data", "string", 0), AGE],
        "services" => &[
            NAME,
            ("Type", "string", 0),
            ("Cluster-IP", "string", 0),
            AGE,
        ],
        "events" => &[
            ("Last Seen", "string", 0),
            ("Type", "string", 0),
            ("Reason", "string", 0),
            ("Object", "string", 0),
            ("Message", "string", 0),
            ("Name", "string", 1),
        ],
        _ => &[NAME, ("Age", "date", 0)],
    }
}

fn cells(resource: &Resource, object: &Value) -> Vec<Value> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let number = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_u64)
            .unwrap_or_default()
    };
    let count = |key: &str| {
        object
            .get(key)
            .and_then(Value::as_object)
            .map_or(0, serde_json::Map::len)
    };
    let name = json!(text("/metadata/name"));
    let age = json!(age(text("/metadata/creationTimestamp")));
    match resource.plural {
        "pods" => {
            let (ready, restarts) = containers(object);
            let or_none = |text: &str| json!(if text.is_empty() { "<none>" } else { text });
            let address = or_none(text("/status/podIP"));
            let status = pod_status(object);
            vec![
                name,
                json!(ready),
                json!(status),
                json!(restarts),
                age,
                address,
                or_none(text("/spec/nodeName")),
            ]
        }
        "nodes" => {
            let version = text("/status/nodeInfo/kubeletVersion");
            vec![
                name,
                json!(node_status(object)),
                json!("<none>"),
                age,
                json!(version),
            ]
        }
        "namespaces" => vec![name, json!(text("/status/phase")), age],
        "deployments" => {
            let ready = format!(
                "{}/{}",
                number("/status/readyReplicas"),
                number("/spec/replicas")
            );
            let (updated, available) = (
                number("/status/updatedReplicas"),
                number("/status/availableReplicas"),
            );
            vec![name, json!(ready), json!(updated), json!(available), age]
        }
        "configmaps" => vec![name, json!(count("data") + count("binaryData")), age],
        "secrets" => vec![name, json!(text("/type")), json!(count("data")), age],
        "services" => vec![
            name,
            json!(text("/spec/type")),
            json!(text("/spec/clusterIP")),
            age,
        ],
        "events" => {
            let about = format!(
                "{}/{}",
                text("/involvedObject/kind"),
                text("/involvedObject/name")
            )
            .to_lowercase();
            vec![
                age,
                json!(text("/type")),
                json!(text("/reason")),
                json!(about),
                json!(text("/message")),
                name,
            ]
        }
        _ => vec![name, age],
    }
}

/// Begins a table; rows follow, then `CLOSE`. `metadata` is JSON.
pub(super) fn open(resource: &Resource, metadata: &str, with_columns: bool) -> Vec<u8> {
    let column = |(name, kind, priority): &Column| {
        let format = if *name == "Name" { "name" } else { "" };
        format!(
            r#"{{"name":"{name}","type":"{kind}","format":"{format}","description":"{name}","priority":{priority}}}"#
        )
    };
    let columns = if with_columns {
        let columns: Vec<String> = columns(resource).iter().map(column).collect();
        format!("[{}]", columns.join(","))
    } else {
        "null".to_owned()
    };
    format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{metadata},"columnDefinitions":{columns},"rows":["#
    )
    .into_bytes()
}

/// Adds one object's row.
pub(super) fn push_row(body: &mut Vec<u8>, resource: &Resource, object: &Object, include: Include) {
    let value = object.value();
    let shown = match include {
        Include::Metadata => encode_metadata(&value),
        Include::Object => object.json().to_vec(),
        Include::None => b"null".to_vec(),
    };
    push(body, &cells(resource, &value), &shown);
}

/// Adds the row by which a table shows a bookmark: empty cells, and the bookmark as its object.
pub(super) fn push_bookmark_row(body: &mut Vec<u8>, resource: &Resource, bookmark: &[u8]) {
    let mut cells = cells(resource, &Value::Null);
    if resource.custom {
        cells[1] = Value::Null;
    }
    push(body, &cells, bookmark);
}

fn push(body: &mut Vec<u8>, cells: &[Value], object: &[u8]) {
    body.extend_from_slice(br#"{"cells":"#);
    body.extend_from_slice(&json::encode(&cells));
    body.extend_from_slice(br#","object":"#);
    body.extend_from_slice(object);
    body.push(b'}');
}

/// How many containers are ready, of how many, and how often they were restarted.
fn containers(pod: &Value) -> (String, String) {
    let statuses = pod
        .pointer("/status/containerStatuses")
        .and_then(Value::as_array);
    let statuses = statuses.map(Vec::as_slice).unwrap_or_default();
    let wanted = pod
        .pointer("/spec/containers")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let ready = statuses
        .iter()
        .filter(|status| status["ready"] == true)
        .count();
    let restarts: u64 = statuses
        .iter()
        .filter_map(|status| status["restartCount"].as_u64())
        .sum();
    (format!("{ready}/{wanted}"), restarts.to_string())
}

fn pod_status(pod: &Value) -> &str {
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return "Terminating";
    }
    pod.pointer("/status/phase")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn node_status(node: &Value) -> &'static str {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
}

/// The time since `created`, in the two greatest units as kubectl shows it.
fn age(created: &str) -> String {
    let Ok(created) = created.parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    let seconds = Timestamp::now()
        .as_second()
        .saturating_sub(created.as_second())
        .max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 > 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 > 0 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectls() {
        let check = |seconds: i64, expected: &str| {
            let created = Timestamp::from_second(Timestamp::now().as_second() - seconds).unwrap();
            // A second may pass in between.
            assert!(
                [expected, &age_of(seconds + 1)].contains(&age(&created.to_string()).as_str()),
                "{seconds}"
            );
        };
        check(5, "5s");
        check(130, "2m10s");
        check(1200, "20m");
        check(11_000, "3h3m");
        check(90_000, "25h");
        check(200_000, "2d7h");
        check(900_000, "10d");
        assert_eq!(age("never"), "<unknown>");
    }

    fn age_of(seconds: i64) -> String {
        age(
            &Timestamp::from_second(Timestamp::now().as_second() - seconds)
                .unwrap()
                .to_string(),
        )
    }

    #[test]
    fn every_resource_has_as_many_cells_as_columns() {
        for resource in &super::super::resource::RESOURCES {
            assert_eq!(
                columns(resource).len(),
                cells(resource, &Value::Null).len(),
                "{}",
                resource.plural
            );
        }
    }

    #[test]
    fn a_row_shows_a_pod() {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{}, {}], "nodeName": "n1"},
            "status": {"phase": "Running", "containerStatuses": [{"ready": true, "restartCount": 3}]},
        });
        let cells = cells(Resource::named("pods").unwrap(), &pod);
        assert_eq!(
            cells,
            [
                json!("p"),
                json!("1/2"),
                json!("Running"),
                json!("3"),
                json!("<unknown>"),
                json!("<none>"),
                json!("n1")
            ]
        );
    }
}

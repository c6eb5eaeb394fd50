//! What the cluster fills in: uids, times, and the defaults that clients rely on.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rand::Rng;
use serde_json::{Map, Value, json};

use super::object::{as_map, metadata_mut};
use super::resource::Resource;

/// The alphabet of generated names: no vowels, so that no words come out.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The current time in whole seconds, as object metadata holds it.
pub(super) fn now() -> String {
    let seconds = Timestamp::now().as_second();
    Timestamp::from_second(seconds)
        .expect("the clock shows a year between -9999 and 9999")
        .to_string()
}

/// A random uid.
pub(super) fn uid() -> String {
    let bits: u128 = rand::rng().random();
    let hex = format!("{bits:032x}");
    format!(
        "{}-{}-4{}-a{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..]
    )
}

/// What follows a `generateName`.
pub(super) fn name_suffix() -> String {
    let mut rng = rand::rng();
    (0..5)
        .map(|_| char::from(NAME_ALPHABET[rng.random_range(0..NAME_ALPHABET.len())]))
        .collect()
}

/// The few defaults that clients depend on; not the whole of the real defaulting.
pub(super) fn apply(resource: &Resource, object: &mut Map<String, Value>) {
    match resource.plural {
        "namespaces" => {
            let metadata = metadata_mut(object);
            let name = metadata.get("name").cloned().unwrap_or_default();
            as_map(metadata.entry("labels").or_insert(Value::Null))
                .insert("kubernetes.io/metadata.name".into(), name);
            fill(object, "spec", json!({"finalizers": ["kubernetes"]}));
            fill(object, "status", json!({"phase": "Active"}));
        }
        "nodes" => {
            fill(object, "spec", json!({}));
            fill(object, "status", json!({}));
        }
        "pods" => {
            fill(
                object,
                "spec",
                json!({"restartPolicy": "Always", "schedulerName": "default-scheduler"}),
            );
            fill(
                object,
                "status",
                json!({"phase": "Pending", "qosClass": "BestEffort"}),
            );
        }
        "secrets" => {
            encode_string_data(object);
            object.entry("type").or_insert_with(|| "Opaque".into());
        }
        "services" => {
            let address = json!({"type": "ClusterIP", "sessionAffinity": "None"});
            fill(object, "spec", address);
            fill(object, "status", json!({"loadBalancer": {}}));
        }
        "events" => {
            for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                object.entry(field).or_insert(Value::Null);
            }
            for field in ["reportingComponent", "reportingInstance"] {
                object.entry(field).or_insert_with(|| "".into());
            }
            fill(object, "source", json!({}));
        }
        "deployments" => {
            fill(
                object,
                "spec",
                json!({"replicas": 1, "strategy": {"type": "RollingUpdate"}}),
            );
            fill(object, "status", json!({}));
        }
        _ => {}
    }
}

/// Sets each of `defaults` in `object[key]` that is absent there.
fn fill(object: &mut Map<String, Value>, key: &str, defaults: Value) {
    let map = as_map(object.entry(key).or_insert(Value::Null));
    if let Value::Object(defaults) = defaults {
        for (field, value) in defaults {
            map.entry(field).or_insert(value);
        }
    }
}

fn encode_string_data(secret: &mut Map<String, Value>) {
    let Some(Value::Object(plain)) = secret.remove("stringData") else {
        return;
    };
    let data = as_map(secret.entry("data").or_insert(Value::Null));
    for (key, value) in plain {
        data.insert(
            key,
            STANDARD.encode(value.as_str().unwrap_or_default()).into(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_look_like_uids() {
        let uid = uid();
        assert_eq!(uid.len(), 36);
        let dashes: Vec<usize> = uid.match_indices('-').map(|(at, _)| at).collect();
        assert_eq!(dashes, [8, 13, 18, 23]);
    }

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({"stringData": {"a": "b"}});
        apply(Resource::named("secrets").unwrap(), as_map(&mut secret));
        assert_eq!(secret, json!({"data": {"a": "Yg=="}, "type": "Opaque"}));
    }
}

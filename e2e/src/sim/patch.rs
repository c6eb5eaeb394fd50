//! Patches: JSON merge patch, and enough of strategic merge patch for `kubectl apply` and `kubectl rollout`.

use serde_json::{Map, Value};

use super::object::as_map;

/// RFC 7386: null removes, objects merge, everything else replaces.
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    let target = as_map(target);
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// As [`merge`], but lists of named objects merge by name. The real rules come from the schema of each field; the
/// name is the merge key of nearly all of them.
pub(super) fn strategic_merge(target: &mut Value, patch: Value) {
    match patch {
        Value::Object(patch) => merge_maps(as_map(target), patch),
        Value::Array(patch)
            if is_named(&patch) && target.as_array().is_some_and(|list| is_named(list)) =>
        {
            merge_lists(target, patch);
        }
        other => *target = other,
    }
}

fn merge_maps(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    if patch
        .get("$patch")
        .is_some_and(|directive| directive == "replace")
    {
        target.clear();
    }
    for (key, value) in patch {
        if key.starts_with('$') {
            continue;
        }
        if value.is_null() {
            target.remove(&key);
        } else {
            strategic_merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn merge_lists(target: &mut Value, patch: Vec<Value>) {
    let Some(target) = target.as_array_mut() else {
        return;
    };
    for item in patch {
        let at = target
            .iter()
            .position(|existing| existing["name"] == item["name"]);
        let delete = item
            .get("$patch")
            .is_some_and(|directive| directive == "delete");
        match at {
            Some(at) if delete => {
                target.remove(at);
            }
            Some(at) => strategic_merge(&mut target[at], item),
            None if delete => {}
            None => target.push(item),
        }
    }
}

fn is_named(list: &[Value]) -> bool {
    list.iter()
        .all(|item| item.get("name").is_some_and(Value::is_string))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_removes_and_lists_replace() {
        let mut target = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge(
            &mut target,
            json!({"a": {"b": null, "c": [3]}, "e": {"f": null}}),
        );
        assert_eq!(target, json!({"a": {"c": [3]}, "d": 1, "e": {}}));
    }

    #[test]
    fn named_lists_merge_by_name() {
        let mut target =
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c"}]});
        let patch = json!({
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}, {"name": "d"}],
        });
        strategic_merge(&mut target, patch);
        assert_eq!(
            target,
            json!({"containers": [{"name": "a", "image": "2"}, {"name": "c"}, {"name": "d"}]})
        );
    }
}

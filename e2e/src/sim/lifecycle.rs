//! What a create, an update and a delete make of an object: pure rules, applied by the store.

use serde_json::{Map, Value, json};

use super::defaults;
use super::object::{Object, as_map, metadata_mut};
use super::resource::{Deletion, Resource};
use super::status::Status;

/// One step of a write. Each takes a revision of its own.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// Store this state.
    Put(Value),
    /// Remove the object, whose last state this was.
    Remove(Value),
}

/// What a write does, and what its answer shows.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    /// The answer, if it is not the state that the last change leaves: a PATCH that takes the last finalizer away
    /// answers with the previous resourceVersion.
    pub(super) answer: Option<Value>,
}

/// Which part of an object an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything, for objects changed from Rust.
    Whole,
    /// Everything but `status`, where that is a subresource.
    Main,
    /// `status` alone.
    Status,
}

/// What a DELETE's body may ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
}

/// Fields that the cluster sets, whatever the client sends.
const OWNED_BY_THE_CLUSTER: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

/// Fields of `metadata` that an update cannot change.
const KEPT_BY_UPDATES: [&str; 7] = [
    "name",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Forgets what a client may not decide about a new object.
pub(super) fn disown(resource: &Resource, object: &mut Value) {
    let object = as_map(object);
    if resource.status {
        object.remove("status");
    }
    let metadata = metadata_mut(object);
    for field in OWNED_BY_THE_CLUSTER {
        metadata.remove(field);
    }
}

/// Completes a new object: name, namespace, uid, creation time, defaults of its kind.
pub(super) fn complete(
    resource: &Resource,
    namespace: &str,
    mut object: Value,
    now: &str,
) -> Result<Value, Status> {
    let map = as_map(&mut object);
    let metadata = metadata_mut(map);
    if resource.namespaced {
        let given = metadata
            .entry("namespace")
            .or_insert_with(|| namespace.into());
        if given != namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
    } else {
        metadata.remove("namespace");
    }
    let text = |key: &str| {
        metadata
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    if text("name").is_empty() {
        let prefix = text("generateName");
        if prefix.is_empty() {
            return Err(Status::name_required(resource));
        }
        let name = format!("{prefix}{}", defaults::name_suffix());
        metadata.insert("name".to_owned(), name.into());
    }
    metadata
        .entry("uid")
        .or_insert_with(|| defaults::uid().into());
    metadata
        .entry("creationTimestamp")
        .or_insert_with(|| now.into());
    if resource.generation {
        metadata.entry("generation").or_insert_with(|| 1.into());
    }
    metadata.remove("resourceVersion");
    defaults::apply(resource, map);
    Ok(object)
}

/// Replaces (a part of) `current` by `object`.
pub(super) fn update(
    resource: &Resource,
    current: &Object,
    mut object: Value,
    part: Part,
) -> Result<Plan, Status> {
    let mut old = current.value();
    let old = as_map(&mut old);
    let new = as_map(&mut object);
    check_precondition(
        resource,
        current,
        metadata_text(new, "uid"),
        metadata_text(new, "resourceVersion"),
    )?;
    if part == Part::Status {
        let status = new.remove("status");
        *new = old.clone();
        set_or_remove(new, "status", status);
    } else if part == Part::Main && resource.status {
        set_or_remove(new, "status", old.get("status").cloned());
    }
    new.insert("kind".to_owned(), resource.kind.into());
    new.insert("apiVersion".to_owned(), resource.api_version().into());
    keep_metadata(metadata_mut(new), metadata_mut(old));
    defaults::apply(resource, new);
    if resource.generation && new.get("spec") != old.get("spec") {
        count_generation(metadata_mut(new));
    }
    if new == old {
        return Ok(Plan::default());
    }
    if metadata_mut(new).contains_key("deletionTimestamp") && !has_finalizers(resource, new) {
        return Ok(Plan {
            changes: vec![Change::Remove(object.clone())],
            answer: Some(object),
        });
    }
    Ok(Plan {
        changes: vec![Change::Put(object)],
        answer: None,
    })
}

/// Deletes `current`, or marks it if finalizers hold it.
pub(super) fn delete(
    resource: &Resource,
    current: &Object,
    options: &DeleteOptions,
    now: &str,
) -> Result<Plan, Status> {
    check_precondition(
        resource,
        current,
        options.uid.as_deref(),
        options.resource_version.as_deref(),
    )?;
    let mut value = current.value();
    let map = as_map(&mut value);
    let held = has_finalizers(resource, map);
    let marked = metadata_mut(map).contains_key("deletionTimestamp");
    if held && marked {
        return Ok(Plan::default());
    }
    let marks = held || resource.deletion == Deletion::Marked;
    if marks && !marked {
        mark(resource, map, now);
    }
    let changes = match (held, marks && !marked) {
        (true, _) => vec![Change::Put(value)],
        (false, true) => vec![Change::Put(value.clone()), Change::Remove(value)],
        (false, false) => vec![Change::Remove(value)],
    };
    Ok(Plan {
        changes,
        answer: None,
    })
}

fn mark(resource: &Resource, object: &mut Map<String, Value>, now: &str) {
    if resource.deletion == Deletion::Namespace {
        object.insert("status".to_owned(), json!({"phase": "Terminating"}));
    }
    let metadata = metadata_mut(object);
    metadata.insert("deletionTimestamp".to_owned(), now.into());
    if resource.deletion != Deletion::Namespace {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    }
    if resource.generation {
        count_generation(metadata);
    }
}

/// A namespace has finalizers in its spec too.
fn has_finalizers(resource: &Resource, object: &Map<String, Value>) -> bool {
    let filled = |holder: &str| {
        let list = object
            .get(holder)
            .and_then(|holder| holder.get("finalizers"));
        list.and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    };
    filled("metadata") || (resource.deletion == Deletion::Namespace && filled("spec"))
}

fn check_precondition(
    resource: &Resource,
    current: &Object,
    uid: Option<&str>,
    resource_version: Option<&str>,
) -> Result<(), Status> {
    if let Some(uid) = uid.filter(|uid| *uid != current.uid) {
        return Err(Status::wrong_uid(
            resource,
            &current.name,
            uid,
            &current.uid,
        ));
    }
    match resource_version {
        Some(version) if version != current.revision.to_string() => {
            Err(Status::modified(resource, &current.name))
        }
        _ => Ok(()),
    }
}

fn keep_metadata(new: &mut Map<String, Value>, old: &Map<String, Value>) {
    for field in KEPT_BY_UPDATES.into_iter().chain(["resourceVersion"]) {
        set_or_remove(new, field, old.get(field).cloned());
    }
}

fn count_generation(metadata: &mut Map<String, Value>) {
    let generation = metadata
        .get("generation")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    metadata.insert("generation".to_owned(), (generation + 1).into());
}

fn set_or_remove(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}

fn metadata_text<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    let text = object.get("metadata")?.get(field)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;

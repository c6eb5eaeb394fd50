//! POST, PUT, PATCH and DELETE.

use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde_json::Value;

use super::Service;
use super::body::{self, Body};
use super::defaults;
use super::json;
use super::lifecycle::{self, Change, DeleteOptions, Part, Plan};
use super::list;
use super::object::as_map;
use super::options::ListOptions;
use super::patch;
use super::protobuf;
use super::query::Query;
use super::resource::{Deletion, Resource};
use super::scale;
use super::status::Status;
use super::store::{Store, Written};
use super::target::ResourcePath;

/// Namespaces that the apiserver keeps.
const PROTECTED: [&str; 3] = ["default", "kube-public", "kube-system"];

/// A write as it came in.
pub(super) struct Write<'a> {
    pub(super) path: &'a ResourcePath,
    pub(super) query: &'a Query,
    pub(super) content_type: &'a str,
    pub(super) body: Bytes,
}

impl Write<'_> {
    /// Answers a POST to a collection.
    pub(super) fn create(&self, service: &Service) -> Result<Response<Body>, Status> {
        let ResourcePath {
            resource,
            namespace,
            ..
        } = self.path;
        let mut object = self.object()?;
        if resource.namespaced && service.store.get("namespaces", "", namespace).is_none() {
            let namespaces =
                Resource::named("namespaces").expect("namespaces are among the resources");
            return Err(Status::not_found(namespaces, namespace));
        }
        lifecycle::disown(resource, &mut object);
        let object = lifecycle::complete(resource, namespace, object, &defaults::now())?;
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let written = service.store.write(
            resource,
            namespace,
            &name,
            self.dry_run(),
            |current| match current {
                Some(_) => Err(Status::already_exists(resource, &name)),
                None => Ok(Plan {
                    changes: vec![Change::Put(object)],
                    answer: None,
                }),
            },
        )?;
        Ok(shown(201, &written))
    }

    /// Answers a PUT of an object or its status.
    pub(super) fn replace(&self, service: &Service) -> Result<Response<Body>, Status> {
        let object = self.object()?;
        self.check_name(&object)?;
        self.update(service, |_| Ok(object))
    }

    /// Answers a PATCH of an object or its status.
    pub(super) fn patch(&self, service: &Service) -> Result<Response<Body>, Status> {
        let merge = match self.content_type {
            "application/merge-patch+json" => patch::merge,
            // The real server knows the strategic kind for built-in types only.
            "application/strategic-merge-patch+json" if !self.path.resource.custom => {
                patch::strategic_merge
            }
            "application/strategic-merge-patch+json" => return Err(Status::unsupported_body()),
            _ => return Err(Status::unsupported_media_type()),
        };
        let patch = parse(self.path.resource, &self.body)?;
        self.update(service, |mut object| {
            merge(&mut object, patch);
            self.check_name(&object)?;
            Ok(object)
        })
    }

    fn update(
        &self,
        service: &Service,
        change: impl FnOnce(Value) -> Result<Value, Status>,
    ) -> Result<Response<Body>, Status> {
        let ResourcePath {
            resource,
            namespace,
            name,
            subresource,
        } = self.path;
        let written =
            service
                .store
                .write(resource, namespace, name, self.dry_run(), |current| {
                    let current = current.ok_or_else(|| Status::not_found(resource, name))?;
                    let object = current.value();
                    let (object, part) = match subresource.as_str() {
                        "status" => (change(object)?, Part::Status),
                        "scale" => {
                            let wanted = change(scale::of(&object))?;
                            (scale::apply(object, &wanted), Part::Main)
                        }
                        _ => (change(object)?, Part::Main),
                    };
                    lifecycle::update(resource, current, object, part)
                })?;
        if written.removed && !self.dry_run() {
            finish_namespace(&service.store, namespace);
        }
        if subresource == "scale" {
            return Ok(body::json(
                [scale::encode(&written.object), b"\n".to_vec()].concat(),
            ));
        }
        Ok(shown(200, &written))
    }

    /// Answers a DELETE of an object.
    pub(super) fn delete(&self, service: &Service) -> Result<Response<Body>, Status> {
        let ResourcePath { resource, name, .. } = self.path;
        if resource.deletion == Deletion::Namespace && PROTECTED.contains(&name.as_str()) {
            return Err(Status::protected_namespace(resource, name));
        }
        let written = self.delete_one(&service.store, name)?;
        if resource.deletion == Deletion::Status && written.removed {
            return Ok(body::json(success(resource, name, &written.object.uid)));
        }
        Ok(shown(200, &written))
    }

    /// Answers a DELETE of a collection: whatever the selector matches goes, and is listed.
    pub(super) async fn delete_collection(
        &self,
        service: &Service,
    ) -> Result<Response<Body>, Status> {
        let resource = self.path.resource;
        if resource.deletion == Deletion::Namespace {
            return Err(Status::method_not_allowed());
        }
        let options = ListOptions::parse(resource, self.query, service.knows_watch_list())?;
        let page = list::read(service, self.path, &options).await?;
        for object in &page.items {
            let path = ResourcePath {
                namespace: object.namespace.clone(),
                ..self.path.clone()
            };
            let one = Write {
                path: &path,
                body: self.body.clone(),
                ..*self
            };
            // Somebody else may have deleted it meanwhile, and that is as good.
            drop(one.delete_one(&service.store, &object.name));
        }
        Ok(list::respond(resource, page))
    }

    fn delete_one(&self, store: &Store, name: &str) -> Result<Written, Status> {
        let ResourcePath {
            resource,
            namespace,
            ..
        } = self.path;
        let options = self.delete_options()?;
        let written = store.write(resource, namespace, name, self.dry_run(), |current| {
            let current = current.ok_or_else(|| Status::not_found(resource, name))?;
            lifecycle::delete(resource, current, &options, &defaults::now())
        })?;
        if !self.dry_run() {
            if resource.deletion == Deletion::Namespace {
                empty_namespace(store, name);
            }
            let namespace = if resource.deletion == Deletion::Namespace {
                name
            } else {
                namespace
            };
            finish_namespace(store, namespace);
        }
        Ok(written)
    }

    fn delete_options(&self) -> Result<DeleteOptions, Status> {
        if self.body.is_empty() {
            return Ok(DeleteOptions::default());
        }
        let options = parse(self.path.resource, &self.body)?;
        let text = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
        Ok(DeleteOptions {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        })
    }

    fn object(&self) -> Result<Value, Status> {
        match self.content_type {
            "" | "application/json" => parse(self.path.resource, &self.body),
            protobuf::MEDIA_TYPE => protobuf::decode(self.path.resource.kind, &self.body)
                .ok_or_else(Status::unsupported_body),
            _ => Err(Status::unsupported_body()),
        }
    }

    fn check_name(&self, object: &Value) -> Result<(), Status> {
        let wanted = &self.path.name;
        match object["metadata"]["name"].as_str() {
            Some(name) if name != wanted => Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({wanted})"
            ))),
            _ => Ok(()),
        }
    }

    /// In the query, or in the body of a DELETE.
    fn dry_run(&self) -> bool {
        self.query.get("dryRun") == Some("All") || {
            let options: Option<Value> = serde_json::from_slice(&self.body).ok();
            options.is_some_and(|options| {
                options["kind"] == "DeleteOptions" && options["dryRun"][0] == "All"
            })
        }
    }
}

fn parse(resource: &Resource, body: &[u8]) -> Result<Value, Status> {
    let parsed: Result<Value, _> = serde_json::from_slice(body);
    let invalid = |why: &str| {
        let kind = resource.kind;
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why}"
        ))
    };
    let mut value = parsed.map_err(|error| invalid(&format!("json parse error: {error}")))?;
    if !value.is_object() {
        return Err(invalid("it is no object"));
    }
    as_map(&mut value);
    Ok(value)
}

fn shown(code: u16, written: &Written) -> Response<Body> {
    let mut bytes = written.object.json().to_vec();
    bytes.push(b'\n');
    body::full(code, "application/json", bytes)
}

/// The answer to the DELETE of an object that is gone at once.
fn success(resource: &Resource, name: &str, uid: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Success<'a> {
        name: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        group: &'a str,
        kind: &'a str,
        uid: &'a str,
    }
    let details = json::encode(&Success {
        name,
        group: resource.group,
        kind: resource.plural,
        uid,
    });
    let mut body =
        br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":"#
            .to_vec();
    body.extend_from_slice(&details);
    body.extend_from_slice(b"}\n");
    body
}

/// What the namespace controller does: everything in a deleted namespace is deleted.
fn empty_namespace(store: &Store, namespace: &str) {
    for (plural, name) in store.names_in(namespace) {
        // Gone already is as good as deleted.
        drop(store.delete(plural, namespace, &name));
    }
}

/// A terminating namespace goes when it is empty.
fn finish_namespace(store: &Store, namespace: &str) {
    let terminating = store
        .get("namespaces", "", namespace)
        .is_some_and(|object| {
            object.value()["metadata"]
                .get("deletionTimestamp")
                .is_some()
        });
    if terminating && store.names_in(namespace).is_empty() {
        // Whoever else finished it did the same.
        drop(store.modify("namespaces", "", namespace, |object| {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.insert("finalizers".to_owned(), Value::Array(Vec::new()));
            }
        }));
    }
}

//! Which fields of a kind may be selected by: of a custom resource, what its definition lists.
//!
//! OpenAPI lists them for everybody who is authenticated, where the definitions themselves may be forbidden. But it is made
//! beside the definitions and may be behind them, so the server is asked as well whether it accepts the fields; likewise
//! those of built-in kinds, which an older server may not know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::requests::{ApiResource, fetch, list_path};
use super::{Kind, Reflector, ReflectorError};
use crate::connection::{Connection, InformerShard};
use crate::envelope::Envelope;
use crate::fields::Fields;
use crate::gvr::Gvr;
use crate::holding::Holding;

/// The pause before a server that did not say is asked again.
const PAUSE: Duration = Duration::from_secs(10);

/// What the server says of a kind's own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmation {
    /// It accepts selectors of them.
    Accepted,
    /// Not of one of them.
    Refused,
    /// There are some that were not known when the objects were read.
    More,
}

impl Reflector {
    /// The fields that a kind is known to have; `None` of a custom resource that OpenAPI does not tell of yet.
    pub(super) async fn learn_fields(
        &self,
        connection: &Connection,
        shard: &InformerShard,
        envelope: &Envelope,
        resource: &ApiResource,
    ) -> Result<Option<Fields>, ReflectorError> {
        let gvr = &self.informer.gvr;
        if envelope.holding() == Holding::Protobuf {
            // Nothing but metadata is read.
            let fields = Fields::built_in(gvr, resource.namespaced);
            return Ok(Some(fields.metadata_only()));
        }
        if !envelope.is_unstructured() {
            return Ok(Some(Fields::built_in(gvr, resource.namespaced)));
        }
        let paths = selectable_fields(connection, shard, gvr, &resource.kind).await?;
        Ok(paths.map(|paths| Fields::custom(&paths, resource.namespaced)))
    }

    /// Asks the server whether it accepts selectors of the kind's own fields, until it has said so: OpenAPI may be behind a
    /// definition, a definition may have changed between `Learn` and the watch, and an older server may lack a field of the
    /// table. Once the watch is open a changed definition ends it, so that what the server accepts then is what it accepts
    /// as long as that lasts.
    pub(super) fn confirm_fields(
        &self,
        connection: &Arc<Connection>,
        shard: &Arc<InformerShard>,
    ) -> impl Future<Output = Result<Confirmation, ReflectorError>> + use<> {
        let (connection, shard) = (Arc::clone(connection), Arc::clone(shard));
        let (gvr, kind) = (self.informer.gvr.clone(), self.kind.clone());
        async move {
            loop {
                if let Some(confirmation) = ask(&connection, &shard, &gvr, &kind).await? {
                    return Ok(confirmation);
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Leaves selectors of the kind's own fields to the server.
    pub(super) fn drop_fields(&mut self, connection: &Connection) -> Result<(), ReflectorError> {
        tracing::info!(
            "the server refuses a field of the kind: selectors of its own fields go live"
        );
        let envelope = self.envelope()?;
        let fields = envelope.fields().metadata_only();
        let envelope = Envelope::clone(envelope).with_fields(fields);
        let envelope = Arc::new(envelope);
        self.kind.envelope = Some(Arc::clone(&envelope));
        self.publish(connection)?;
        // Some may have selected by what is no field.
        self.informer.history().interrupt(envelope);
        Ok(())
    }
}

/// What the server says of a kind's own fields; `None` where it does not say now.
async fn ask(
    connection: &Connection,
    shard: &InformerShard,
    gvr: &Gvr,
    kind: &Kind,
) -> Result<Option<Confirmation>, ReflectorError> {
    if let Some(name) = &kind.untold {
        let told = selectable_fields(connection, shard, gvr, name).await?;
        return Ok(told.map(|paths| {
            if paths.is_empty() {
                Confirmation::Accepted
            } else {
                Confirmation::More
            }
        }));
    }
    let envelope = kind.envelope.as_ref();
    let fields = envelope.ok_or(ReflectorError::NotLearned)?.fields();
    if fields.own().next().is_none() {
        return Ok(Some(Confirmation::Accepted));
    }
    let query = selector_of_all(fields);
    let path = if kind.namespaced {
        let (group_version, resource) = (gvr.group_version_path(), &gvr.resource);
        format!("{group_version}/namespaces/default/{resource}?{query}")
    } else {
        list_path(gvr, &query)
    };
    match fetch(connection, shard, &path).await {
        Ok(_) => Ok(Some(Confirmation::Accepted)),
        Err(ReflectorError::Status { code: 400, .. }) => Ok(Some(Confirmation::Refused)),
        Err(ReflectorError::Status { code, .. }) if code != 401 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Options of a list that name every field, and at most one object: the server need not look at others.
fn selector_of_all(fields: &Fields) -> String {
    let mut query = "resourceVersion=0&fieldSelector=metadata.name=none".to_owned();
    for field in fields.own() {
        query += &format!(",{field}=");
    }
    query
}

/// The fields of a custom resource that may be selected by, as OpenAPI tells them; `None` where it does not tell of the
/// kind yet, as in the first second of a new group.
async fn selectable_fields(
    connection: &Connection,
    shard: &InformerShard,
    gvr: &Gvr,
    kind: &str,
) -> Result<Option<Vec<String>>, ReflectorError> {
    let path = format!("/openapi/v3{}", gvr.group_version_path());
    match fetch(connection, shard, &path).await {
        Ok(body) => Ok(fields_in_openapi(&body, gvr, kind)),
        // Forbidden, or unknown to the server.
        Err(ReflectorError::Status {
            code: 403 | 406, ..
        }) => Ok(Some(Vec::new())),
        // The part of the server that makes it may be ill: no reason to keep nothing.
        Err(ReflectorError::Status { code, .. }) if code != 401 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The fields that a group version's document lists for a kind; `None` where the kind is not in it.
fn fields_in_openapi(body: &[u8], gvr: &Gvr, kind: &str) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct OpenApi {
        components: Components,
    }
    #[derive(Deserialize)]
    struct Components {
        schemas: BTreeMap<String, Schema>,
    }
    #[derive(Deserialize)]
    struct Schema {
        #[serde(rename = "x-kubernetes-group-version-kind", default)]
        kinds: Vec<GroupVersionKind>,
        #[serde(rename = "x-kubernetes-selectable-fields", default)]
        fields: Vec<SelectableField>,
    }
    #[derive(Deserialize)]
    struct GroupVersionKind {
        group: String,
        version: String,
        kind: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct SelectableField {
        field_path: String,
    }
    let document: OpenApi = serde_json::from_slice(body).ok()?;
    let is_kind = |known: &GroupVersionKind| {
        *known.group == *gvr.group && *known.version == *gvr.version && known.kind == kind
    };
    let mut schemas = document.components.schemas.into_values();
    let schema = schemas.find(|schema| schema.kinds.iter().any(is_kind))?;
    let paths = schema.fields.into_iter().map(|field| field.field_path);
    Some(paths.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openapi_lists_the_fields_of_a_kind() {
        let document = r#"{"openapi":"3.0.0","paths":{},"components":{"schemas":{
            "io.ex.v1.Gadget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"ex.io","kind":"Gadget","version":"v1"}]},
            "io.ex.v1.Widget":{"type":"object","properties":{"spec":{"x-kubernetes-selectable-fields":7}},
                "x-kubernetes-group-version-kind":[{"group":"ex.io","kind":"Widget","version":"v1"}],
                "x-kubernetes-selectable-fields":[{"fieldPath":"spec.color"},{"fieldPath":"spec.n"}]},
            "io.k8s.ListMeta":{"description":"d"}}}}"#;
        let check = |version: &str, kind: &str| {
            fields_in_openapi(document.as_bytes(), &Gvr::new("ex.io", version, "x"), kind)
        };
        let fields = ["spec.color", "spec.n"].map(str::to_owned).to_vec();
        assert_eq!(check("v1", "Widget"), Some(fields));
        assert_eq!(check("v1", "Gadget"), Some(Vec::new()));
        assert_eq!(check("v2", "Widget"), None);
        assert_eq!(check("v1", "Other"), None);
        for body in ["", "{}", "404 page not found"] {
            let gvr = Gvr::new("ex.io", "v1", "widgets");
            assert_eq!(fields_in_openapi(body.as_bytes(), &gvr, "Widget"), None);
        }
    }
}

//! What a request wants, as an authorizer is asked about it.

use fleetcache_auth::{NonResourceAttributes, Question, ResourceAttributes, selected_name};

use crate::query::{percent_decode, query_pairs};
use crate::request_info::{RequestInfo, ResourcePath};

/// Of a read of a resource, as kube-apiserver reads it from the same request.
pub(crate) fn of_read(info: &RequestInfo<'_>, resource: &ResourcePath<'_>) -> Question {
    let (mut fields, mut labels) = (None, None);
    if resource.name.is_none() {
        for (key, value) in query_pairs(info.query) {
            match &*key {
                "fieldSelector" => drop(fields.get_or_insert_with(|| value.into_owned())),
                "labelSelector" => drop(labels.get_or_insert_with(|| value.into_owned())),
                _ => {}
            }
        }
    }
    let name = match (&resource.name, &fields) {
        (Some(name), _) => name.to_string(),
        (None, Some(fields)) => selected_name(fields).unwrap_or_default(),
        (None, None) => String::new(),
    };
    let gvr = &resource.gvr;
    // A Namespace is in the namespace of its own name.
    let own =
        resource.namespace.is_none() && gvr.group.is_empty() && &*gvr.resource == "namespaces";
    let namespace = match own {
        true => resource.name.as_deref(),
        false => resource.namespace.as_deref(),
    };
    Question::Resource(ResourceAttributes {
        verb: info.verb.as_str(),
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        resource: gvr.resource.to_string(),
        subresource: String::new(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name,
        field_selector: fields.filter(|it| !it.is_empty()),
        label_selector: labels.filter(|it| !it.is_empty()),
    })
}

/// Of a write, where its path is that of a resource.
pub(crate) fn of_write(info: &RequestInfo<'_>) -> Option<Question> {
    let resource = ResourcePath::parse_lenient(info.path())?;
    let mut question = of_read(info, &resource);
    if let (Question::Resource(attributes), Some(subresource)) =
        (&mut question, resource.subresource)
    {
        attributes.subresource = subresource.into_owned();
    }
    Some(question)
}

/// Of a GET of what a cluster says about itself.
pub(crate) fn of_document(info: &RequestInfo<'_>) -> Question {
    Question::NonResource(NonResourceAttributes {
        verb: "get",
        path: percent_decode(info.path()).into_owned(),
    })
}

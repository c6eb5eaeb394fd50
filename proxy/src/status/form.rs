//! `metav1.Status` as Go writes it.

use std::borrow::Cow;

use serde::Serialize;

/// `metav1.Status`, in its key order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) metadata: ListMeta<'a>,
    pub(super) status: &'static str,
    pub(super) message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<&'a Details>,
    pub(super) code: u16,
}

/// `metav1.ListMeta`: a page that came too late tells how to go on.
#[derive(Serialize)]
pub(super) struct ListMeta<'a> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub(super) continue_token: Option<&'a str>,
}

/// `metav1.StatusDetails`, in its key order.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) causes: Vec<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_seconds: Option<u64>,
}

impl Details {
    pub(super) fn of(cluster: &str) -> Self {
        Self {
            name: Some(cluster.to_owned()),
            kind: Some("clusters"),
            ..Self::default()
        }
    }
}

/// `metav1.StatusCause`, in its key order.
#[derive(Serialize)]
pub(super) struct Cause {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) field: Option<&'static str>,
}

impl Cause {
    pub(super) fn because(reason: &'static str) -> Self {
        Self {
            reason: Some(reason),
            message: None,
            field: None,
        }
    }
}

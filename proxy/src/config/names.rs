//! Names that Kubernetes gives: a rule for one that cannot be would hold for nothing, and nobody would be told.

use super::section::Form;

/// What [`group`] takes: a DNS-1123 subdomain, or nothing.
pub(super) const GROUP_FORM: Form = &[
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
    r"^[\s\S]{0,253}$",
];

/// What [`resource`] takes: a DNS label.
pub(super) const RESOURCE_FORM: Form = &[r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", r"^[\s\S]{0,63}$"];

/// An API group; empty for the core group.
pub(crate) fn group(text: &str) -> Result<String, String> {
    if text.is_empty() || (text.len() <= 253 && text.split('.').all(is_label)) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not an API group such as \"apps\", without a version, or \"\" for the core group"
        ))
    }
}

/// The plural name of a resource.
pub(crate) fn resource(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("must not be empty".to_owned())
    } else if text.len() <= 63 && is_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not the plural name of a resource, such as \"pods\""
        ))
    }
}

/// What [`namespace`] takes: a DNS label.
pub(super) const NAMESPACE_FORM: Form = RESOURCE_FORM;

/// A namespace.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    if text.len() <= 63 && is_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not the name of a namespace"))
    }
}

/// Lower-case letters, digits and `-`, which neither begins nor ends it.
fn is_label(text: &str) -> bool {
    let is_part = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    !text.is_empty() && text.bytes().all(is_part) && !text.starts_with('-') && !text.ends_with('-')
}

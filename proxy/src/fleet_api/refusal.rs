//! What the fleet's API refuses, before it is a Status: each in kube-apiserver's own words for custom resources.

use fleetcache_cache::resource_version::ResourceVersion;

/// Why a request to the fleet's API is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Options that cannot be read.
    BadRequest(String),
    /// Options that do not go together.
    InvalidOptions(Vec<FieldError>),
    /// A resourceVersion that is none; of a GET or a watch the server speaks of a fault of its own.
    InvalidVersion(String),
    /// A resourceVersion that is yet to come.
    TooLarge {
        /// The version asked for.
        asked: ResourceVersion,
        /// The newest one.
        current: ResourceVersion,
    },
    /// The state at that version is not held any more.
    Expired,
    /// No object of that name.
    NotFound {
        /// The name.
        name: String,
    },
    /// The user may not.
    Forbidden {
        /// The user's name.
        user: String,
        /// What it wants to do.
        verb: &'static str,
        /// To which object; "" is all of them.
        name: String,
        /// To which part of it; "" is the whole.
        subresource: String,
    },
    /// The user may not read what is no resource.
    ForbiddenPath {
        /// The user's name.
        user: String,
        /// The method in lower case.
        verb: String,
        /// The path.
        path: String,
    },
    /// No representation that is accepted.
    NotAcceptable(String),
    /// One object is no list.
    NotAList,
    /// The verb means nothing to the resource; "" for a method that is none of the API's.
    Unsupported {
        /// The verb.
        verb: &'static str,
    },
    /// Nothing is served at that path of a group.
    PageNotFound,
}

/// What is wrong with one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The option.
    pub field: &'static str,
    /// `FieldValueForbidden`, …
    pub reason: &'static str,
    /// In words.
    pub message: String,
}

impl FieldError {
    /// The option may not be given.
    pub fn forbidden(field: &'static str, why: &str) -> Self {
        Self {
            field,
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
        }
    }

    /// The option has a value that means nothing.
    pub fn unsupported(field: &'static str, value: &str, supported: &str) -> Self {
        Self {
            field,
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value:?}: supported values: {supported}"),
        }
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

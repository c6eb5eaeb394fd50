//! The users of a simulated cluster, and what they may do. Of whom nothing is said may do everything.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use serde_json::Value;

use super::status::Status;

/// Whom a valid token stands for of which nothing else is said.
pub(super) const ADMIN: &str = "admin";

/// What a user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Kubernetes verbs.
    pub verbs: Vec<String>,
    /// Resources in the plural, of any group.
    pub resources: Vec<String>,
    /// Where; everywhere if there is none.
    pub namespace: Option<String>,
}

impl Rule {
    /// These verbs for these resources, everywhere.
    pub fn new(verbs: &[&str], resources: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Self {
            verbs: owned(verbs),
            resources: owned(resources),
            namespace: None,
        }
    }

    /// In one namespace only.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self
        }
    }

    fn allows(&self, verb: &str, resource: &str, namespace: &str) -> bool {
        let is_there = self.namespace.as_deref().is_none_or(|it| it == namespace);
        let has = |texts: &[String], text: &str| texts.iter().any(|it| it == text);
        is_there && has(&self.verbs, verb) && has(&self.resources, resource)
    }
}

/// Who is known. Held for a look.
#[derive(Debug, Default)]
pub(super) struct Users {
    by_token: RwLock<BTreeMap<String, String>>,
    rules: RwLock<BTreeMap<String, Vec<Rule>>>,
}

impl Users {
    pub(super) fn accept(&self, token: &str, user: &str) {
        let mut by_token = self.by_token.write();
        by_token.insert(token.to_owned(), user.to_owned());
    }

    pub(super) fn restrict(&self, user: &str, rules: Vec<Rule>) {
        self.rules.write().insert(user.to_owned(), rules);
    }

    pub(super) fn of_token(&self, token: &str) -> Option<String> {
        self.by_token.read().get(token).cloned()
    }

    /// Whom a request is from: who sends it, or whom that one names instead.
    pub(super) fn acting(sender: String, named: Option<&str>) -> Result<String, Status> {
        match named {
            Some(named) if sender != ADMIN => Err(Status::may_not_impersonate(&sender, named)),
            Some(named) => Ok(named.to_owned()),
            None => Ok(sender),
        }
    }

    pub(super) fn may(&self, user: &str, verb: &str, resource: &str, namespace: &str) -> bool {
        let rules = self.rules.read();
        let rules = rules.get(user);
        rules.is_none_or(|rules| rules.iter().any(|it| it.allows(verb, resource, namespace)))
    }

    /// What a review's `spec` asks. Paths that are no resource are for all.
    pub(super) fn may_as_asked(&self, user: &str, spec: &Value) -> bool {
        let attributes = &spec["resourceAttributes"];
        let text = |name: &str| attributes[name].as_str().unwrap_or_default();
        attributes.is_null() || self.may(user, text("verb"), text("resource"), text("namespace"))
    }
}

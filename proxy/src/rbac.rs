//! The ClusterRole of the proxy's credential in a cluster: what the proxy asks there as itself, and nothing more.
//!
//! `e2e/tests/e2e/least_privilege.rs` takes one part of it away after the other, and finds for each what fails then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use crate::config::names;
use crate::identity::Identity;

/// The resources of the core group that can be listed and watched; no other will ever be added to it.
const CORE: [&str; 15] = [
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "services",
];

const HEAD: &str = "\
# What fleetcache's credential may do in a cluster, and nothing more. Bind it to nobody else:
";

const IMPERSONATES: &str = "\
# WHO HAS IT IS AS GOOD AS cluster-admin, since it may act as any user in any group, system:masters included.
# docs/AUTH.md of fleetcache says how to narrow that to some users, and what they lose who are left out.
";

const ASKS_ONLY: &str = "\
# who has it reads all that is listed below, whatever the proxy's users may. Their own tokens do the rest.
";

const METADATA: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: fleetcache
rules:
";

/// What is wrong with a resource that is to be cached, and what to write instead.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("--resources: {0}")]
pub struct BadResource(String);

/// What the proxy is configured to do in the cluster.
#[derive(Clone, Debug)]
pub struct Needs {
    /// What is kept in memory.
    pub resources: Resources,
    /// `defaults.identity`, of which [`Identity::Proxy`] has no role of its own: the rights are those of its users.
    pub identity: Identity,
    /// Whether the cluster is asked about tokens.
    pub token_review: bool,
}

/// The resources that are kept in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resources {
    /// Whatever there is.
    All,
    /// These, by group.
    Some(BTreeMap<String, BTreeSet<String>>),
}

impl Resources {
    /// Reads each `resource` of the core group, `resource.group`, or `*` for everything.
    ///
    /// # Errors
    /// One that cannot be, or none.
    pub fn parse(given: &[String]) -> Result<Self, BadResource> {
        let mut by_group = BTreeMap::<String, BTreeSet<String>>::new();
        let mut all = false;
        // As an empty variable comes.
        let given = given.iter().filter(|it| given.len() > 1 || !it.is_empty());
        for text in given {
            if text == "*" {
                all = true;
                continue;
            }
            let (group, resource) = parse_one(text).map_err(BadResource)?;
            by_group.entry(group).or_default().insert(resource);
        }
        match (all, by_group.is_empty()) {
            (false, false) => Ok(Self::Some(by_group)),
            (true, true) => Ok(Self::All),
            (true, false) => Err(BadResource(
                "\"*\" is everything: leave it out, or the others".to_owned(),
            )),
            (false, true) => Err(BadResource("names no resource".to_owned())),
        }
    }

    fn has(&self, is_one: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::Some(by_group) => by_group.keys().any(|group| is_one(group)),
        }
    }
}

/// The group and the resource.
fn parse_one(text: &str) -> Result<(String, String), String> {
    if text.trim().is_empty() {
        return Err("names an empty resource: there is a comma too many".to_owned());
    }
    if let Some((left, right)) = text.split_once('/') {
        let subresource = CORE.contains(&left) || left.contains('.');
        return Err(if subresource {
            format!(
                "{text:?} is a subresource, of which none is kept in memory: \"{left}\" is enough"
            )
        } else {
            format!(
                "{text:?} has a slash: write resource.group without a version, such as \"{}\"",
                example(right, left)
            )
        });
    }
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    let first = group.split('.').next().unwrap_or_default();
    if is_version(first) {
        let group = group.strip_prefix(first).unwrap_or_default();
        return Err(format!(
            "{text:?} has a version, but a role holds for all of them: write \"{resource}{group}\""
        ));
    }
    if text.ends_with('.') {
        return Err(format!("{text:?} ends with a dot: the group is missing"));
    }
    names::resource(resource)?;
    names::group(group)?;
    if group.is_empty() && !CORE.contains(&resource) {
        return Err(format!(
            "{resource:?} is no resource of the core group that can be watched. One of another group is written with it, as in \
             \"deployments.apps\"; the core group has {}",
            CORE.join(", ")
        ));
    }
    Ok((group.to_owned(), resource.to_owned()))
}

/// What somebody may have meant by two words with a slash between them.
fn example(one: &str, other: &str) -> String {
    let is_group = |word: &str| word == "apps" || word.contains('.');
    match (is_version(one) || one.is_empty(), is_group(one)) {
        (true, _) => "deployments.apps".to_owned(),
        (false, true) => format!("{other}.{one}"),
        (false, false) => format!("{one}.{other}"),
    }
}

/// `v1`, `v1beta1`, …
fn is_version(word: &str) -> bool {
    word.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()))
}

/// One rule, and why it is there.
struct Rule {
    why: &'static str,
    groups: Vec<String>,
    resources: Vec<String>,
    names: &'static [&'static str],
    paths: Vec<&'static str>,
    verbs: &'static [&'static str],
}

impl Rule {
    fn new(why: &'static str, group: &str, resources: &[&str], verbs: &'static [&str]) -> Self {
        Self {
            why,
            groups: vec![group.to_owned()],
            resources: resources.iter().map(|&it| it.to_owned()).collect(),
            names: &[],
            paths: Vec::new(),
            verbs,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.why.lines() {
            writeln!(f, "# {line}")?;
        }
        let mut lead = '-';
        let mut field = |name: &str, list: &[String]| {
            if list.is_empty() {
                return Ok(());
            }
            let lead = std::mem::replace(&mut lead, ' ');
            let list: Vec<_> = list.iter().map(|it| format!("{it:?}")).collect();
            writeln!(f, "{lead} {name}: [{}]", list.join(", "))
        };
        let owned =
            |list: &[&str]| -> Vec<String> { list.iter().map(|&it| it.to_owned()).collect() };
        field("apiGroups", &self.groups)?;
        field("resources", &self.resources)?;
        field("resourceNames", &owned(self.names))?;
        field("nonResourceURLs", &owned(&self.paths))?;
        field("verbs", &owned(self.verbs))
    }
}

/// The role as YAML.
pub fn cluster_role(needs: &Needs) -> String {
    let impersonates = needs.identity == Identity::Impersonate;
    let mut text = HEAD.to_owned();
    text += if impersonates {
        IMPERSONATES
    } else {
        ASKS_ONLY
    };
    text += METADATA;
    for rule in rules(needs) {
        // Never fails: a String takes everything.
        let _ = write!(text, "{rule}");
    }
    text
}

fn rules(needs: &Needs) -> Vec<Rule> {
    let mut rules = kept(&needs.resources);
    rules.push(Rule {
        names: &["kube-system"],
        ..Rule::new(
            "Which cluster is it? The uid of kube-system tells whether another one has taken its place, so that nothing of the\n\
             old one is shown any more.",
            "",
            &["namespaces"],
            &["get"],
        )
    });
    rules.push(documents(needs));
    if needs.identity != Identity::Proxy {
        rules.push(Rule::new(
            "May this user see what is in memory? The cluster decides. Without it every read goes live.",
            "authorization.k8s.io",
            &["subjectaccessreviews"],
            &["create"],
        ));
    }
    if needs.token_review {
        rules.push(Rule::new(
            "Whose token is it (authentication.tokenReview)?",
            "authentication.k8s.io",
            &["tokenreviews"],
            &["create"],
        ));
    }
    if needs.identity == Identity::Impersonate {
        let users: &[&str] = match needs.token_review {
            // Whose tokens the cluster itself has made.
            true => &["users", "groups", "serviceaccounts"],
            false => &["users", "groups"],
        };
        rules.push(Rule::new(
            "What does not come from memory is asked for as the user who asks, whom the cluster then authorizes and audits.",
            "",
            users,
            &["impersonate"],
        ));
        rules.push(Rule::new(
            "Users are more than a name: uids, and userextras of any key, for which RBAC has no pattern but this. Nothing else in\n\
             this group is impersonated.",
            "authentication.k8s.io",
            &["*"],
            &["impersonate"],
        ));
    }
    rules
}

fn kept(resources: &Resources) -> Vec<Rule> {
    const VERBS: &[&str] = &["list", "watch"];
    match resources {
        Resources::All => vec![Rule::new(
            "What is kept in memory is listed and watched once for all users: everything, Secrets included, which the proxy lists\n\
             only where its configuration says so. `--resources` names less; reads of what it leaves out go live.",
            "*",
            &["*"],
            VERBS,
        )],
        Resources::Some(by_group) => {
            let rules = by_group.iter().map(|(group, resources)| {
                let resources: Vec<_> = resources.iter().map(String::as_str).collect();
                Rule::new("", group, &resources, VERBS)
            });
            let mut rules: Vec<_> = rules.collect();
            if let Some(first) = rules.first_mut() {
                first.why = "What is kept in memory is listed and watched once for all users. Reads of all else go live.";
            }
            rules
        }
    }
}

fn documents(needs: &Needs) -> Rule {
    let resources = &needs.resources;
    let mut paths = vec!["/readyz", "/version", "/api", "/apis"];
    if resources.has(str::is_empty) {
        paths.push("/api/v1");
    }
    if resources.has(|group| !group.is_empty()) {
        paths.push("/apis/*");
    }
    // No definition can have a group without a dot, and what is built in needs no reading of schemas.
    if resources.has(|group| group.contains('.')) {
        paths.push("/openapi/v3/apis/*");
    }
    if needs.token_review {
        paths.push("/.well-known/openid-configuration");
    }
    Rule {
        why: "Is it well (`probe.path`, if that is another), and what does it serve: which kinds, and by which fields custom\n\
              resources can be selected. All users may read most of this, but where the cluster was hardened.",
        groups: Vec::new(),
        resources: Vec::new(),
        names: &[],
        paths,
        verbs: &["get"],
    }
}

#[cfg(test)]
mod tests;

//! Names of resources: a GVR addresses one, a storage is what it is kept in.

use std::fmt;
use std::sync::Arc;

/// Group, version and plural resource name, as in a request's path. The core group is "".
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    /// API group, "" for the core group.
    pub group: Arc<str>,
    /// API version, such as `v1`.
    pub version: Arc<str>,
    /// Plural name, such as `pods`.
    pub resource: Arc<str>,
}

impl Gvr {
    /// Names a resource.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// The `apiVersion` of this resource's objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path under which its group version is served: `/api/v1`, `/apis/apps/v1`.
    pub fn group_version_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// What the server keeps this resource's objects in.
    pub fn storage(&self) -> Storage {
        // The two groups of events are two views of the same objects.
        if &*self.group == "events.k8s.io" && &*self.resource == "events" {
            return Storage {
                group: "".into(),
                resource: Arc::clone(&self.resource),
            };
        }
        Storage {
            group: Arc::clone(&self.group),
            resource: Arc::clone(&self.resource),
        }
    }
}

impl fmt::Display for Gvr {
    /// `pods.v1.` would be Go's; ours reads as kubectl's: `pods.v1`, `deployments.v1.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        if self.group.is_empty() {
            Ok(())
        } else {
            write!(f, ".{}", self.group)
        }
    }
}

/// Group and resource without the version: all versions of a resource are one storage with one sequence of
/// resourceVersions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    /// API group, "" for the core group.
    pub group: Arc<str>,
    /// Plural name, such as `pods`.
    pub resource: Arc<str>,
}

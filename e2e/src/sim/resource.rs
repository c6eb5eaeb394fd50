//! The kinds that a simulated cluster serves, and what differs between them.

/// One resource of the simulated API.
#[derive(Debug)]
pub(super) struct Resource {
    /// The API group, empty for the core group.
    pub(super) group: &'static str,
    /// The version.
    pub(super) version: &'static str,
    /// The name in paths, `pods`. Unique among the resources served.
    pub(super) plural: &'static str,
    /// The singular name in discovery.
    pub(super) singular: &'static str,
    /// The kind of one object.
    pub(super) kind: &'static str,
    /// What `kubectl` accepts as an abbreviation.
    pub(super) short_names: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub(super) namespaced: bool,
    /// Custom resources are written in alphabetical key order and keep their kind inside lists.
    pub(super) custom: bool,
    /// Whether `…/status` exists, and the main path therefore leaves `status` alone.
    pub(super) status: bool,
    /// Whether `…/scale` exists.
    pub(super) scale: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(super) generation: bool,
    /// The apiserver keeps no watch cache for events: their "too large" answer has no `Retry-After`.
    pub(super) watch_cache: bool,
    /// What a DELETE answers and how the object goes.
    pub(super) deletion: Deletion,
    /// Fields that a field selector may name besides `metadata.name` and, in namespaces, `metadata.namespace`.
    pub(super) fields: &'static [&'static str],
    /// What the kind's encoder adds to an empty object, as seen in bookmarks; starts with a comma or is empty.
    pub(super) empty: &'static str,
}

/// How a kind leaves the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    /// Removed at once, answered by `Status` Success with the uid.
    Status,
    /// Removed at once, answered by the last object.
    Object,
    /// Marked as terminating first, then removed (a pod that no kubelet runs); answered by the object.
    Marked,
    /// Marked, then its content goes, then itself.
    Namespace,
}

const EMPTY_NODE_STATUS: &str = r#","spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#;
const EMPTY_DEPLOYMENT: &str = r#","spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}"#;
const EMPTY_EVENT: &str = r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":"""#;

/// What most resources have in common; the table below states the differences.
const PLAIN: Resource = Resource {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    short_names: &[],
    namespaced: true,
    custom: false,
    status: false,
    scale: false,
    generation: false,
    watch_cache: true,
    deletion: Deletion::Status,
    fields: &[],
    empty: "",
};

/// Every resource served, core group first, each group in the order of its plural names.
pub(super) static RESOURCES: [Resource; 9] = [
    Resource {
        plural: "configmaps",
        singular: "configmap",
        kind: "ConfigMap",
        short_names: &["cm"],
        ..PLAIN
    },
    Resource {
        plural: "events",
        singular: "event",
        kind: "Event",
        short_names: &["ev"],
        watch_cache: false,
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ],
        empty: EMPTY_EVENT,
        ..PLAIN
    },
    Resource {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        short_names: &["ns"],
        namespaced: false,
        status: true,
        deletion: Deletion::Namespace,
        fields: &["status.phase"],
        empty: r#","spec":{},"status":{}"#,
        ..PLAIN
    },
    Resource {
        plural: "nodes",
        singular: "node",
        kind: "Node",
        short_names: &["no"],
        namespaced: false,
        status: true,
        fields: &["spec.unschedulable"],
        empty: EMPTY_NODE_STATUS,
        ..PLAIN
    },
    Resource {
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        short_names: &["po"],
        status: true,
        generation: true,
        deletion: Deletion::Marked,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ],
        empty: r#","spec":{"containers":null},"status":{}"#,
        ..PLAIN
    },
    Resource {
        plural: "secrets",
        singular: "secret",
        kind: "Secret",
        fields: &["type"],
        ..PLAIN
    },
    Resource {
        plural: "services",
        singular: "service",
        kind: "Service",
        short_names: &["svc"],
        status: true,
        deletion: Deletion::Object,
        fields: &["spec.clusterIP", "spec.type"],
        empty: r#","spec":{},"status":{"loadBalancer":{}}"#,
        ..PLAIN
    },
    Resource {
        group: "apps",
        plural: "deployments",
        singular: "deployment",
        kind: "Deployment",
        short_names: &["deploy"],
        status: true,
        scale: true,
        generation: true,
        empty: EMPTY_DEPLOYMENT,
        ..PLAIN
    },
    Resource {
        group: "example.com",
        plural: "widgets",
        singular: "widget",
        kind: "Widget",
        short_names: &["wd"],
        custom: true,
        status: true,
        generation: true,
        ..PLAIN
    },
];

impl Resource {
    /// The resource with this plural name.
    pub(super) fn named(plural: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|resource| resource.plural == plural)
    }

    /// The resource served at `/apis/<group>/<version>/<plural>`, or `/api/<version>/<plural>` for the core group.
    pub(super) fn at(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        Self::named(plural)
            .filter(|resource| resource.group == group && resource.version == version)
    }

    /// `v1` or `apps/v1`.
    pub(super) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `configmaps` or `widgets.example.com`, as error messages name it.
    pub(super) fn qualified(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// The text before the key `metadata` in an encoded object; a list leaves it out of the items of built-in kinds.
    pub(super) fn type_prefix(&self) -> String {
        format!(
            r#"{{"kind":"{}","apiVersion":"{}","#,
            self.kind,
            self.api_version()
        )
    }

    /// Whether a field selector may use `field`.
    pub(super) fn knows_field(&self, field: &str) -> bool {
        match field {
            "metadata.name" => true,
            "metadata.namespace" => self.namespaced || self.uses_default_fields(),
            other => self.fields.contains(&other),
        }
    }

    /// Kinds without a field conversion of their own share one default, which has its own words for errors.
    pub(super) fn uses_default_fields(&self) -> bool {
        self.fields.is_empty() && !self.custom
    }
}

//! The kinds of Kubernetes that accept more, or less, than `metadata.name` and `metadata.namespace`: each has a conversion
//! function of its own (`AddFieldLabelConversionFunc` in `pkg/apis/*/*/conversion.go`), and its registry's strategy says
//! what the values are.

use crate::gvr::Gvr;

/// The name of a field, the paths whose first value it has, and what an object without one has.
type Row = (&'static str, &'static [&'static str], &'static str);

/// A kind with a function of its own.
pub(super) struct Kind {
    group: &'static str,
    resource: &'static str,
    /// The versions that are known to be written with these paths.
    versions: &'static [&'static str],
    /// Whether `metadata.namespace` is accepted.
    pub(super) namespace: bool,
    fields: &'static [Row],
}

impl Kind {
    /// Its fields; none in a version that is not known, since only the server knows what that one accepts.
    pub(super) fn fields(&self, gvr: &Gvr) -> &'static [Row] {
        if self.versions.contains(&&*gvr.version) {
            self.fields
        } else {
            &[]
        }
    }
}

/// The row of a kind, if it has one.
pub(super) fn kind(gvr: &Gvr) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| *kind.group == *gvr.group && *kind.resource == *gvr.resource)
}

const KINDS: [Kind; 13] = [
    Kind {
        group: "",
        resource: "pods",
        versions: &["v1"],
        namespace: true,
        fields: &[
            ("spec.nodeName", &["spec.nodeName"], ""),
            // What spec.nodeName was called before v1.
            ("spec.host", &["spec.nodeName"], ""),
            ("spec.restartPolicy", &["spec.restartPolicy"], ""),
            ("spec.schedulerName", &["spec.schedulerName"], ""),
            ("spec.serviceAccountName", &["spec.serviceAccountName"], ""),
            ("spec.hostNetwork", &["spec.hostNetwork"], "false"),
            ("status.phase", &["status.phase"], ""),
            ("status.podIP", &["status.podIPs[0].ip"], ""),
            // Accepted, but the server never sets it.
            ("status.podIPs", &[], ""),
            (
                "status.nominatedNodeName",
                &["status.nominatedNodeName"],
                "",
            ),
        ],
    },
    Kind {
        group: "",
        resource: "events",
        versions: &["v1"],
        namespace: true,
        fields: &[
            ("involvedObject.kind", &["involvedObject.kind"], ""),
            (
                "involvedObject.namespace",
                &["involvedObject.namespace"],
                "",
            ),
            ("involvedObject.name", &["involvedObject.name"], ""),
            ("involvedObject.uid", &["involvedObject.uid"], ""),
            (
                "involvedObject.apiVersion",
                &["involvedObject.apiVersion"],
                "",
            ),
            (
                "involvedObject.resourceVersion",
                &["involvedObject.resourceVersion"],
                "",
            ),
            (
                "involvedObject.fieldPath",
                &["involvedObject.fieldPath"],
                "",
            ),
            ("reason", &["reason"], ""),
            ("reportingComponent", &["reportingComponent"], ""),
            ("source", &["source.component", "reportingComponent"], ""),
            ("type", &["type"], ""),
        ],
    },
    Kind {
        group: "events.k8s.io",
        resource: "events",
        versions: &["v1"],
        namespace: true,
        fields: &[
            ("regarding.kind", &["regarding.kind"], ""),
            ("regarding.namespace", &["regarding.namespace"], ""),
            ("regarding.name", &["regarding.name"], ""),
            ("regarding.uid", &["regarding.uid"], ""),
            ("regarding.apiVersion", &["regarding.apiVersion"], ""),
            (
                "regarding.resourceVersion",
                &["regarding.resourceVersion"],
                "",
            ),
            ("regarding.fieldPath", &["regarding.fieldPath"], ""),
            ("reason", &["reason"], ""),
            ("reportingController", &["reportingController"], ""),
            ("type", &["type"], ""),
        ],
    },
    Kind {
        group: "",
        resource: "nodes",
        versions: &["v1"],
        namespace: false,
        fields: &[("spec.unschedulable", &["spec.unschedulable"], "false")],
    },
    Kind {
        group: "",
        resource: "namespaces",
        versions: &["v1"],
        namespace: false,
        fields: &[("status.phase", &["status.phase"], "")],
    },
    Kind {
        group: "",
        resource: "secrets",
        versions: &["v1"],
        namespace: true,
        fields: &[("type", &["type"], "")],
    },
    Kind {
        group: "",
        resource: "services",
        versions: &["v1"],
        namespace: true,
        fields: &[
            ("spec.clusterIP", &["spec.clusterIP"], ""),
            ("spec.type", &["spec.type"], ""),
        ],
    },
    Kind {
        group: "",
        resource: "replicationcontrollers",
        versions: &["v1"],
        namespace: true,
        fields: &[("status.replicas", &["status.replicas"], "0")],
    },
    Kind {
        group: "batch",
        resource: "jobs",
        versions: &["v1"],
        namespace: true,
        fields: &[("status.successful", &["status.succeeded"], "0")],
    },
    Kind {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        versions: &["v1"],
        namespace: false,
        fields: &[("spec.signerName", &["spec.signerName"], "")],
    },
    Kind {
        group: "certificates.k8s.io",
        resource: "podcertificaterequests",
        versions: &["v1alpha1", "v1beta1"],
        namespace: false,
        fields: &[
            ("spec.signerName", &["spec.signerName"], ""),
            ("spec.podName", &["spec.podName"], ""),
            ("spec.nodeName", &["spec.nodeName"], ""),
        ],
    },
    Kind {
        group: "certificates.k8s.io",
        resource: "clustertrustbundles",
        versions: &["v1alpha1", "v1beta1"],
        namespace: false,
        fields: &[("spec.signerName", &["spec.signerName"], "")],
    },
    Kind {
        group: "resource.k8s.io",
        resource: "resourceslices",
        versions: &["v1alpha3", "v1beta1", "v1beta2", "v1"],
        namespace: false,
        fields: &[
            ("spec.nodeName", &["spec.nodeName"], ""),
            ("spec.driver", &["spec.driver"], ""),
        ],
    },
];

//! The kinds that a server prints by code of its own, and which of their columns depend on the time.
//!
//! By names of columns, as kube-apiserver 1.20 to 1.36 and its aggregator have them. A name that is not here may be of a cell
//! that grows old: its kind is not kept as a Table.

use super::rule::Rule;
use crate::gvr::Gvr;

/// Resources by group.
#[rustfmt::skip]
const KINDS: &[(&str, &[&str])] = &[
    ("", &[
        "configmaps", "endpoints", "events", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods",
        "podtemplates", "replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services",
    ]),
    ("admissionregistration.k8s.io", &[
        "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
        "validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
    ]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("apps", &["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("certificates.k8s.io", &["certificatesigningrequests", "clustertrustbundles", "podcertificaterequests"]),
    ("coordination.k8s.io", &["leasecandidates", "leases"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("events.k8s.io", &["events"]),
    ("extensions", &["ingresses"]),
    ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
    ("internal.apiserver.k8s.io", &["storageversions"]),
    ("networking.k8s.io", &[
        "clustercidrs", "ingressclasses", "ingresses", "ipaddresses", "networkpolicies", "servicecidrs",
    ]),
    ("node.k8s.io", &["runtimeclasses"]),
    ("policy", &["poddisruptionbudgets", "podsecuritypolicies"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "rolebindings"]),
    ("resource.k8s.io", &[
        "deviceclasses", "devicetaintrules", "podschedulingcontexts", "resourceclaimparameters", "resourceclaims",
        "resourceclaimtemplates", "resourceclasses", "resourceclassparameters", "resourcepoolstatusrequests",
        "resourceslices",
    ]),
    ("scheduling.k8s.io", &["podgroups", "priorityclasses", "workloads"]),
    ("storage.k8s.io", &[
        "csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments", "volumeattributesclasses",
    ]),
    ("storagemigration.k8s.io", &["storageversionmigrations"]),
];

/// Columns whose cells say the same at any time, in any kind that has them.
#[rustfmt::skip]
const TIMELESS: &[&str] = &[
    "Access Modes", "Active", "Address", "AddressType", "Allocated", "AllocationMode", "AllowVolumeExpansion",
    "Allowed Disruptions", "AssuredConcurrencyShares", "AttachRequired", "Attached", "Attacher", "Available", "BinaryVersion",
    "CIDRs", "Capacity", "Caps", "Claim", "Class", "Cluster-IP", "CommonEncodingVersion", "Completions", "Condition",
    "Container-Runtime", "Containers", "Controller", "Count", "Current", "Data", "Desired", "DistinguisherMethod", "Driver",
    "DriverName", "Drivers", "Effect", "EmulationVersion", "Endpoints", "Errors", "External-IP", "FsGroup", "GeneratedFrom",
    "Global-Default", "Groups", "HandSize", "Handler", "Holder", "Hosts", "IP", "IPv4", "IPv6", "Images", "Internal-IP",
    "Kernel-Version", "Key", "LeaseName", "Limit", "MatchingPrecedence", "Max Unavailable", "MaxPods", "Message",
    "Min Available", "MinPods", "MissingPL", "Modes", "Mutations", "Name", "Node", "Node Selector", "NodeName",
    "NodeSelector", "NominalConcurrencyShares", "Nominated Node", "OS-Image", "Object", "PV", "ParamKind", "ParamRef",
    "Parameters", "ParentRef", "PerNodeHostBits", "Pod Labels", "Pod-Selector", "PodInfoOnMount", "PodName", "Policy",
    "PolicyName", "Pool", "Pools", "Port(s)", "Ports", "PreemptionPolicy", "PriorityLevel", "Priv", "Provisioner",
    "QueueLengthLimit", "Queues", "ReadOnlyRootFs", "Readiness Gates", "Ready", "Reason", "Reclaim Policy", "ReclaimPolicy",
    "Reference", "Replicas", "Request",
    // How long a certificate was asked for.
    "RequestedDuration",
    "Requestor", "RequiresRepublish", "Resource", "ResourceClassName", "Revision", "Role", "Roles", "RunAsUser", "SELinux",
    "Schedule", "Secrets", "SelectedNode", "Selector", "Service", "ServiceAccountName", "ServiceAccounts", "SignerName",
    "Source", "State", "Status", "StorageCapacity", "StorageClass", "StorageClassName", "StorageVersions", "Subobject",
    "SupGroup", "Suspend", "Targets", "Timezone", "TokenRequests", "Total", "Type", "Unavailable",
    "UnverifiedUserAnnotations", "Up-to-date", "Users", "Validations", "Value", "Version", "Volume",
    "VolumeAttributesClass", "VolumeBindingMode", "VolumeMode", "Volumes", "Webhooks", "Workload",
];

pub(super) fn is_known(gvr: &Gvr) -> bool {
    let mut kinds = KINDS.iter().filter(|(group, _)| **group == *gvr.group);
    kinds.any(|(_, resources)| resources.contains(&&*gvr.resource))
}

/// Whether the rows are in another order than the objects: by the precedence of their matching.
pub(super) fn is_sorted(gvr: &Gvr) -> bool {
    (&*gvr.group, &*gvr.resource) == ("flowcontrol.apiserver.k8s.io", "flowschemas")
}

/// How the cells of a column are made; `None` where it is not known.
pub(super) fn rule(gvr: &Gvr, column: &str) -> Option<Rule> {
    Some(match (&*gvr.group, &*gvr.resource, column) {
        (_, _, "Age") => Rule::Age,
        ("", "pods", "Restarts") => Rule::Restarts,
        ("batch", "jobs", "Duration") => Rule::Duration,
        ("batch", "cronjobs", "Last Schedule") => Rule::LastSchedule,
        ("" | "events.k8s.io", "events", "First Seen") => Rule::FirstSeen,
        ("" | "events.k8s.io", "events", "Last Seen") => Rule::LastSeen,
        ("resource.k8s.io", "devicetaintrules", "TimeAdded") => Rule::TimeAdded,
        ("resource.k8s.io", "resourcepoolstatusrequests", "Completed") => Rule::Completed,
        _ if TIMELESS.binary_search(&column).is_ok() => Rule::Timeless,
        _ => return None,
    })
}

/// A cell that some servers write behind those of the columns that they name.
pub(super) fn unnamed(gvr: &Gvr) -> Option<Rule> {
    match (&*gvr.group, &*gvr.resource) {
        ("networking.k8s.io", "ipaddresses") => Some(Rule::Age),
        // Its condition, which has a name from 1.36 on.
        ("storagemigration.k8s.io", "storageversionmigrations") => Some(Rule::Timeless),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_searched() {
        assert!(TIMELESS.is_sorted());
    }
}

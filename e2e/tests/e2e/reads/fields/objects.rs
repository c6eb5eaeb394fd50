//! A few objects of each kind whose fields can be selected by: with values, and without.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, IsCa, KeyPair};

use super::*;

pub(super) const KINDS: [Kind; 17] = [
    Kind {
        path: "/api/v1/namespaces/default/pods",
        fields: &[
            ("metadata.name", &["a", "b"]),
            ("metadata.namespace", &["default"]),
            ("spec.nodeName", &["n1"]),
            ("spec.host", &["n1"]),
            ("spec.restartPolicy", &["Never", "Always"]),
            ("spec.schedulerName", &["s1", "default-scheduler"]),
            ("spec.serviceAccountName", &["sa1"]),
            ("spec.hostNetwork", &["true", "false"]),
            ("status.phase", &["Running", "Pending"]),
            ("status.podIP", &["10.0.0.1", "fd00::1"]),
            ("status.podIPs", &["10.0.0.1"]),
            ("status.nominatedNodeName", &["n2"]),
        ],
        refused: &["spec.foo", "status.hostIP"],
    },
    Kind {
        path: "/api/v1/namespaces/default/events",
        fields: &[
            ("metadata.name", &["a"]),
            ("metadata.namespace", &["default"]),
            ("involvedObject.kind", &["Pod", "Node"]),
            ("involvedObject.namespace", &["default"]),
            ("involvedObject.name", &["p"]),
            ("involvedObject.uid", &["u-1"]),
            ("involvedObject.apiVersion", &["v1"]),
            ("involvedObject.resourceVersion", &["7"]),
            ("involvedObject.fieldPath", &["spec.containers{c}"]),
            ("reason", &["R"]),
            ("reportingComponent", &["rc1", "rc2", "rc3"]),
            ("source", &["c1", "rc2", "rc3"]),
            ("type", &["Normal", "Warning"]),
        ],
        refused: &["regarding.kind", "reportingController"],
    },
    Kind {
        path: "/apis/events.k8s.io/v1/namespaces/default/events",
        fields: &[
            ("metadata.name", &["a"]),
            ("metadata.namespace", &["default"]),
            ("regarding.kind", &["Pod", "Node"]),
            ("regarding.namespace", &["default"]),
            ("regarding.name", &["p"]),
            ("regarding.uid", &["u-1"]),
            ("regarding.apiVersion", &["v1"]),
            ("regarding.resourceVersion", &["7"]),
            ("regarding.fieldPath", &["spec.containers{c}"]),
            ("reason", &["R"]),
            ("reportingController", &["rc1", "rc2", "rc3"]),
            ("type", &["Normal", "Warning"]),
        ],
        refused: &["involvedObject.kind", "source", "reportingComponent"],
    },
    Kind {
        path: "/api/v1/nodes",
        fields: &[
            ("metadata.name", &["n1"]),
            ("spec.unschedulable", &["true", "false"]),
        ],
        refused: &["metadata.namespace"],
    },
    Kind {
        path: "/api/v1/namespaces",
        fields: &[
            ("metadata.name", &["default"]),
            ("status.phase", &["Active", "Terminating"]),
        ],
        refused: &["metadata.namespace", "name"],
    },
    Kind {
        path: "/api/v1/namespaces/default/secrets",
        fields: &[
            ("metadata.name", &["a"]),
            ("metadata.namespace", &["default"]),
            ("type", &["Opaque", "kubernetes.io/basic-auth"]),
        ],
        refused: &["data"],
    },
    Kind {
        path: "/api/v1/namespaces/default/services",
        fields: &[
            ("metadata.name", &["a"]),
            ("metadata.namespace", &["default"]),
            ("spec.clusterIP", &["None"]),
            ("spec.type", &["ClusterIP", "NodePort", "ExternalName"]),
        ],
        refused: &["spec.clusterIPs"],
    },
    Kind {
        path: "/api/v1/namespaces/default/replicationcontrollers",
        fields: &[
            ("metadata.name", &["a"]),
            ("metadata.namespace", &["default"]),
            ("status.replicas", &["2"]),
        ],
        refused: &["spec.replicas"],
    },
    Kind {
        path: "/apis/batch/v1/namespaces/default/jobs",
        fields: &[
            ("metadata.name", &["a"]),
            ("metadata.namespace", &["default"]),
            ("status.successful", &["2"]),
        ],
        refused: &["status.succeeded"],
    },
    Kind {
        path: "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        fields: &[
            ("metadata.name", &["a"]),
            ("spec.signerName", &["ex.io/a", "ex.io/b"]),
        ],
        refused: &["metadata.namespace", "spec.username"],
    },
    Kind {
        path: "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests",
        fields: &[
            ("metadata.name", &["a"]),
            ("spec.signerName", &["ex.io/a", "ex.io/b"]),
            ("spec.podName", &["pod-a"]),
            ("spec.nodeName", &["node-a"]),
        ],
        refused: &["metadata.namespace", "spec.podUID"],
    },
    Kind {
        path: "/apis/certificates.k8s.io/v1beta1/clustertrustbundles",
        fields: &[
            ("metadata.name", &["ex.io:a:a"]),
            ("spec.signerName", &["ex.io/a"]),
        ],
        refused: &["metadata.namespace"],
    },
    Kind {
        path: "/apis/resource.k8s.io/v1/resourceslices",
        fields: &[
            ("metadata.name", &["a"]),
            ("spec.nodeName", &["n1"]),
            ("spec.driver", &["d1.ex.io", "d2.ex.io"]),
        ],
        refused: &["metadata.namespace", "spec.pool"],
    },
    // Kinds without a function of their own.
    Kind {
        path: "/api/v1/namespaces/default/configmaps",
        fields: &[("metadata.name", &["a"])],
        refused: &["status.phase", "data"],
    },
    Kind {
        path: "/api/v1/configmaps",
        fields: &[
            ("metadata.name", &["a"]),
            ("metadata.namespace", &["default", "kube-system"]),
        ],
        refused: &["spec.nodeName"],
    },
    Kind {
        path: "/apis/apps/v1/namespaces/default/replicasets",
        fields: &[("metadata.name", &["a"])],
        refused: &["status.replicas", "status.successful"],
    },
    Kind {
        path: "/api/v1/persistentvolumes",
        fields: &[("metadata.name", &["a"])],
        refused: &["spec.storageClassName"],
    },
];

async fn put(client: &Client, path: &str, api_version: &str, kind: &str, mut object: Value) {
    let status = object.as_object_mut().unwrap().remove("status");
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    create(client, path, object.clone()).await;
    if let Some(status) = status {
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("{path}/{name}/status");
        let patched = client.patch(&path, &json!({"status": status})).await;
        patched.unwrap().ok().unwrap();
    }
}

/// Two objects or more of each kind. Nothing else writes to the cluster, so that they stay as they are.
pub(super) async fn create_all(client: &Client) {
    pods(client).await;
    events(client).await;
    for object in [
        json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": true}}),
        json!({"metadata": {"name": "n2"}}),
    ] {
        put(client, "/api/v1/nodes", "v1", "Node", object).await;
    }
    let namespace = json!({"metadata": {"name": "ending"}});
    put(client, "/api/v1/namespaces", "v1", "Namespace", namespace).await;
    let deleted = client.delete("/api/v1/namespaces/ending").await;
    deleted.unwrap().ok().unwrap();
    for object in [
        json!({"metadata": {"name": "a"}, "data": {"k": "dg=="}}),
        json!({"metadata": {"name": "b"}, "type": "kubernetes.io/basic-auth", "stringData": {"username": "u", "password": "p"}}),
    ] {
        let path = "/api/v1/namespaces/default/secrets";
        put(client, path, "v1", "Secret", object).await;
    }
    let ports = json!([{"port": 80}]);
    for object in [
        json!({"metadata": {"name": "a"}, "spec": {"ports": ports}}),
        json!({"metadata": {"name": "b"}, "spec": {"ports": ports, "clusterIP": "None"}}),
        json!({"metadata": {"name": "c"}, "spec": {"ports": ports, "type": "NodePort"}}),
        json!({"metadata": {"name": "d"}, "spec": {"type": "ExternalName", "externalName": "ex.io"}}),
    ] {
        let path = "/api/v1/namespaces/default/services";
        put(client, path, "v1", "Service", object).await;
    }
    workloads(client).await;
    certificates(client).await;
    for object in [
        json!({"metadata": {"name": "a"}, "spec": {"driver": "d1.ex.io", "nodeName": "n1", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}),
        json!({"metadata": {"name": "b"}, "spec": {"driver": "d2.ex.io", "allNodes": true, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}),
    ] {
        let path = "/apis/resource.k8s.io/v1/resourceslices";
        put(client, path, "resource.k8s.io/v1", "ResourceSlice", object).await;
    }
    for (namespace, name) in [("default", "a"), ("default", "b"), ("kube-system", "a")] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        put(
            client,
            &path,
            "v1",
            "ConfigMap",
            json!({"metadata": {"name": name}}),
        )
        .await;
    }
    for name in ["a", "b"] {
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
        let object = json!({"metadata": {"name": name}, "spec": spec});
        put(
            client,
            "/api/v1/persistentvolumes",
            "v1",
            "PersistentVolume",
            object,
        )
        .await;
    }
}

async fn pods(client: &Client) {
    let containers = json!([{"name": "c", "image": "i"}]);
    for object in [
        json!({
            "metadata": {"name": "a"},
            "spec": {"containers": containers, "nodeName": "n1", "restartPolicy": "Never", "schedulerName": "s1", "serviceAccountName": "sa1", "hostNetwork": true},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }),
        json!({"metadata": {"name": "b"}, "spec": {"containers": containers}}),
        json!({
            "metadata": {"name": "c"},
            "spec": {"containers": containers, "securityContext": {"runAsUser": 1}},
            "status": {"nominatedNodeName": "n2"},
        }),
    ] {
        let path = "/api/v1/namespaces/default/pods";
        put(client, path, "v1", "Pod", object).await;
    }
    // A namespace with a pod of the same name, so that the namespace of a list counts.
    let object = json!({"metadata": {"name": "a"}, "spec": {"containers": containers}});
    let path = "/api/v1/namespaces/kube-system/pods";
    put(client, path, "v1", "Pod", object).await;
}

async fn events(client: &Client) {
    let reference = json!({"kind": "Pod", "namespace": "default", "name": "p", "uid": "u-1", "apiVersion": "v1", "resourceVersion": "7", "fieldPath": "spec.containers{c}"});
    for object in [
        json!({"metadata": {"name": "a"}, "involvedObject": reference, "reason": "R", "type": "Normal", "source": {"component": "c1"}, "reportingComponent": "rc1"}),
        json!({"metadata": {"name": "b"}, "involvedObject": {"kind": "Node"}, "type": "Warning", "reportingComponent": "rc2"}),
        json!({"metadata": {"name": "c"}, "involvedObject": {"namespace": "default"}}),
    ] {
        let path = "/api/v1/namespaces/default/events";
        put(client, path, "v1", "Event", object).await;
    }
    let event = json!({
        "metadata": {"name": "d"}, "regarding": reference, "reason": "S", "type": "Normal", "action": "A",
        "reportingController": "rc3", "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    put(client, path, "events.k8s.io/v1", "Event", event).await;
}

async fn workloads(client: &Client) {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (name, replicas) in [("a", 2), ("b", 0)] {
        let path = "/api/v1/namespaces/default/replicationcontrollers";
        let object = json!({"metadata": {"name": name}, "spec": {"replicas": 3, "template": template}, "status": {"replicas": replicas}});
        put(client, path, "v1", "ReplicationController", object).await;
        let path = "/apis/apps/v1/namespaces/default/replicasets";
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        let object =
            json!({"metadata": {"name": name}, "spec": spec, "status": {"replicas": replicas}});
        put(client, path, "apps/v1", "ReplicaSet", object).await;
    }
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    for object in [
        json!({"metadata": {"name": "a"}, "spec": {"template": template}, "status": {"startTime": "2026-01-01T00:00:00Z", "succeeded": 2}}),
        json!({"metadata": {"name": "b"}, "spec": {"template": template}}),
    ] {
        let path = "/apis/batch/v1/namespaces/default/jobs";
        put(client, path, "batch/v1", "Job", object).await;
    }
}

async fn certificates(client: &Client) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let bundle = params.self_signed(&key).unwrap().pem();
    for name in ["a", "b"] {
        let signer = format!("ex.io/{name}");
        let request_pem = STANDARD.encode(request.pem().unwrap());
        let spec = json!({"signerName": signer, "request": request_pem, "usages": ["client auth"]});
        let object = json!({"metadata": {"name": name}, "spec": spec});
        let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        let version = "certificates.k8s.io/v1";
        put(client, path, version, "CertificateSigningRequest", object).await;

        let version = "certificates.k8s.io/v1beta1";
        let spec = json!({
            "signerName": signer, "podName": format!("pod-{name}"), "podUID": "u", "serviceAccountName": "sa", "serviceAccountUID": "u",
            "nodeName": format!("node-{name}"), "nodeUID": "u", "maxExpirationSeconds": 3600, "stubPKCS10Request": STANDARD.encode(request.der()),
        });
        let object = json!({"metadata": {"name": name}, "spec": spec});
        let path = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
        put(client, path, version, "PodCertificateRequest", object).await;
    }
    for object in [
        json!({"metadata": {"name": "ex.io:a:a"}, "spec": {"signerName": "ex.io/a", "trustBundle": bundle}}),
        json!({"metadata": {"name": "plain"}, "spec": {"trustBundle": bundle}}),
    ] {
        let path = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
        let version = "certificates.k8s.io/v1beta1";
        put(client, path, version, "ClusterTrustBundle", object).await;
    }
}

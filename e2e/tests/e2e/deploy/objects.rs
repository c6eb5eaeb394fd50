//! Each object as a real kube-apiserver takes it, with its admission of pods.

use std::collections::BTreeSet;
use std::process::Command;

use fleetcache_e2e::binaries;
use fleetcache_e2e::control_plane::User;
use fleetcache_e2e::least_privilege::cluster_role;
use serde_json::{Value, json};

use super::files::{Files, repository};
use super::{NAMESPACE, kustomize, management, objects, the};

const DRY_RUN: [&str; 5] = [
    "apply",
    "--server-side",
    "--dry-run=server",
    "--filename=-",
    "--force-conflicts",
];

const PODS: &str = "/api/v1/namespaces/fleetcache/pods?dryRun=All";

const REPLICATED: &str = "\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base]
components: [../two-replicas]
";

#[tokio::test]
async fn a_real_server_accepts_every_object() {
    let plane = management().await;
    let files = Files::new(&plane.context(User::Bob).unwrap());
    files.write("replicated/kustomization.yaml", REPLICATED);
    let kubectl = plane.kubectl().await.unwrap();
    // Its admission looks at the labels of the namespace as it is.
    let namespace = std::fs::read_to_string(files.path("base/namespace.yaml")).unwrap();
    let apply = ["apply", "--server-side", "--filename=-"];
    let applied = kubectl.run_with_input(&apply, &namespace).await.unwrap();
    applied.ok().unwrap();

    let mut kinds = BTreeSet::new();
    for folder in [
        "base",
        "replicated",
        "cluster-api",
        "cluster-secrets",
        "secrets",
        "workload-cluster",
    ] {
        let manifest = kustomize(&kubectl, &files, folder).await;
        let all = objects(&kubectl, &manifest).await;
        let tried = kubectl.run_with_input(&DRY_RUN, &manifest).await.unwrap();
        // Warnings are of fields that do nothing, and of pods that the namespace would refuse.
        assert_eq!(tried.stderr, "", "{folder}");
        let accepted = tried.ok().unwrap();
        let accepted = accepted
            .lines()
            .filter(|it| it.ends_with(" (server dry run)"));
        assert_eq!(accepted.count(), all.len(), "{folder}");
        kinds.extend(all.iter().map(|it| it["kind"].as_str().unwrap().to_owned()));
    }
    let expected = "ClusterRole ClusterRoleBinding ConfigMap Deployment Namespace NetworkPolicy PodDisruptionBudget Role \
                    RoleBinding Secret Service ServiceAccount";
    assert_eq!(Vec::from_iter(kinds).join(" "), expected);

    // The server would have said so.
    let manifest = kustomize(&kubectl, &files, "base").await;
    for (right, wrong, told) in [
        (
            "readOnlyRootFilesystem",
            "readOnlyRootFileSystem",
            "field not declared in schema",
        ),
        ("maxSurge: 1", "maxSurge: -1", "Invalid value"),
        (
            "runAsNonRoot: true",
            "runAsNonRoot: false",
            "violate PodSecurity",
        ),
    ] {
        let broken = manifest.replace(right, wrong);
        assert_ne!(broken, manifest);
        let tried = kubectl.run_with_input(&DRY_RUN, &broken).await.unwrap();
        assert!(tried.stderr.contains(told), "{wrong}: {}", tried.stderr);
    }
}

#[tokio::test]
async fn its_pods_pass_the_restricted_standard() {
    let plane = management().await;
    let files = Files::new(&plane.context(User::Bob).unwrap());
    let kubectl = plane.kubectl().await.unwrap();
    let admin = plane.client().unwrap();
    let namespace = std::fs::read_to_string(files.path("base/namespace.yaml")).unwrap();
    let apply = ["apply", "--server-side", "--filename=-"];
    let applied = kubectl.run_with_input(&apply, &namespace).await.unwrap();
    applied.ok().unwrap();
    for folder in ["base", "cluster-api", "cluster-secrets"] {
        let all = objects(&kubectl, &kustomize(&kubectl, &files, folder).await).await;
        let namespace = the(&all, "Namespace");
        assert_eq!(namespace["metadata"]["name"], NAMESPACE);
        let mut pod = the(&all, "Deployment")["spec"]["template"].clone();
        pod["metadata"]["name"] = json!("one");
        admin.create(PODS, &pod).await.unwrap().ok().unwrap();
        // More than the standard asks for.
        let security = &pod["spec"]["containers"][0]["securityContext"];
        assert_eq!(security["readOnlyRootFilesystem"], true);

        for (pointer, value) in [
            ("/spec/securityContext/runAsNonRoot", json!(false)),
            ("/spec/securityContext/runAsUser", json!(0)),
            (
                "/spec/securityContext/seccompProfile/type",
                json!("Unconfined"),
            ),
            (
                "/spec/containers/0/securityContext/allowPrivilegeEscalation",
                json!(true),
            ),
            (
                "/spec/containers/0/securityContext/capabilities/drop",
                Value::Null,
            ),
            (
                "/spec/volumes/0",
                json!({"name": "config", "hostPath": {"path": "/"}}),
            ),
        ] {
            let mut broken = pod.clone();
            *broken.pointer_mut(pointer).unwrap() = value;
            let refused = admin.create(PODS, &broken).await.unwrap();
            assert_eq!(refused.status, 403, "{pointer}: {}", refused.text());
            let told = "violates PodSecurity \\\"restricted:latest\\\"";
            assert!(refused.text().contains(told), "{}", refused.text());
        }
    }
}

#[tokio::test]
async fn the_role_of_the_proxys_account_is_the_one_that_is_printed() {
    let program = binaries::fleetcache().await.unwrap();
    let printed = Command::new(program).arg("rbac").output().unwrap();
    let path = repository().join("deploy/workload-cluster/cluster-role.yaml");
    let shipped = std::fs::read_to_string(path).unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), shipped);
}

/// The docs also make an account with its rights by hand, and the pod has one in the cluster that it runs in.
#[tokio::test]
async fn what_is_made_by_hand_is_left_as_it_is() {
    let plane = management().await;
    let files = Files::new(&plane.context(User::Bob).unwrap());
    let kubectl = plane.kubectl().await.unwrap();
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename=-",
    ];
    let role = cluster_role(&["--resources", "pods"]).await.unwrap();
    let applied = kubectl.run_with_input(&apply, &role).await.unwrap();
    applied.ok().unwrap();
    let mut commands = BTreeSet::new();
    for doc in ["docs/AUTH.md", "docs/USERS.md"] {
        let doc = std::fs::read_to_string(repository().join(doc)).unwrap();
        let mut lines = doc.lines();
        let binding = lines.find(|it| it.starts_with("kubectl create clusterrolebinding "));
        commands.insert(binding.unwrap().to_owned());
    }
    for command in commands {
        let words: Vec<_> = command.split_whitespace().skip(1).collect();
        kubectl.run(&words).await.unwrap().ok().unwrap();
    }
    let made = async || {
        let get = ["get", "clusterrole,clusterrolebinding", "--output=json"];
        let all = kubectl.run(&get).await.unwrap().ok().unwrap();
        let all: Value = serde_json::from_str(&all).unwrap();
        let all = all["items"].as_array().unwrap().clone();
        let is_made = |it: &Value| it["metadata"]["name"] == "fleetcache";
        all.into_iter().filter(is_made).collect::<Vec<_>>()
    };
    let before = made().await;
    assert_eq!(before.len(), 2);
    let manifest = kustomize(&kubectl, &files, "workload-cluster").await;
    let applied = kubectl.run_with_input(&apply, &manifest).await.unwrap();
    applied.ok().unwrap();
    assert_eq!(made().await, before);

    let base = objects(&kubectl, &kustomize(&kubectl, &files, "base").await).await;
    let all = objects(&kubectl, &manifest).await;
    let of_the_pod = &the(&base, "ServiceAccount")["metadata"]["name"];
    for binding in [&before[1], the(&all, "ClusterRoleBinding")] {
        let bound = &binding["subjects"][0]["name"];
        assert!(bound.is_string() && bound != of_the_pod, "{binding}");
    }
}

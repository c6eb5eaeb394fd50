//! Names and mistakes, over files.

use std::os::unix::fs::PermissionsExt as _;

use fleetcache_cache::cluster_config::EndpointConfig;

use super::*;
use crate::authorization::testing::idle;

#[test]
fn the_proxy_recognises_itself() {
    let listen: ListenAddress = "0.0.0.0:8443".parse().unwrap();
    let itself = Itself {
        listen: &listen,
        ca_pem: "MINE\n",
    };
    let check = |server: &str, ca: &str, expect: bool| {
        let idle = idle("a");
        let cluster = ClusterConfig {
            endpoint: EndpointConfig {
                server: server.parse().unwrap(),
                certificate_authority: Some(ca.as_bytes().to_owned()),
                ..idle.endpoint
            },
            ..idle
        };
        assert_eq!(itself.is(&cluster), expect, "{server} {ca}");
    };
    check("https://127.0.0.1:8443/clusters/a", "OTHER", true);
    check("https://localhost:8443/clusters/a", "OTHER", true);
    check("https://127.0.0.1:8443", "OTHER", false);
    check("https://127.0.0.1:9443/clusters/a", "OTHER", false);
    check("https://127.0.0.1:9443/clusters/a", "MINE", true);
    check("https://proxy.example/clusters/a", "OTHER", false);
}

/// A kubeconfig of clusters where nobody listens.
fn kubeconfig(contexts: &[&str]) -> String {
    let entries: Vec<_> = contexts
        .iter()
        .map(|name| serde_json::json!({"name": name, "context": {"cluster": "k", "user": "u"}}))
        .collect();
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": entries,
    })
    .to_string()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let of_its_own = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(of_its_own).tempdir();
        Self(folder.unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// The names of clusters by file and context, as loaded with the names held before.
    fn load(&self, files: &[&str], held: &Names) -> (Names, Vec<String>) {
        let sources = files.iter().map(|file| format!("{{ path: {file} }}"));
        let text = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nstateDir: s\nclusters: {{ kubeconfigs: [ {} ] }}",
            sources.collect::<Vec<_>>().join(", ")
        );
        self.write("fleetcache.yaml", &text);
        let args = crate::args::ServeArgs {
            config: Some(self.path("fleetcache.yaml")),
            ..Default::default()
        };
        let config = Config::from_args(&args, &|_| None).unwrap();
        let itself = Itself {
            listen: &config.listen,
            ca_pem: "",
        };
        let found = load_again(&config, &itself, held).unwrap();
        let reasons = found.rejected.into_iter().map(|it| it.reason).collect();
        (found.names, reasons)
    }

    fn origin(&self, file: &str, context: &str) -> Origin {
        Origin {
            paths: vec![self.path(file)],
            context: context.to_owned(),
        }
    }
}

#[test]
fn a_cluster_that_stays_keeps_its_name() {
    let folder = Folder::new();
    let name = |names: &Names, file: &str, context: &str| {
        names
            .get(&folder.origin(file, context))
            .cloned()
            .unwrap_or_default()
    };
    folder.write("one", &kubeconfig(&["x"]));
    folder.write("two", &kubeconfig(&["admin@kind", "beta"]));
    let (before, _) = folder.load(&["one", "two"], &Names::new());
    assert_eq!(name(&before, "two", "admin@kind"), "admin-kind");

    // In the same file, before it: one that would be named so, and one that is named so.
    folder.write(
        "two",
        &kubeconfig(&["admin_kind", "admin-kind", "admin@kind", "beta"]),
    );
    let (after, rejected) = folder.load(&["one", "two"], &before);
    assert_eq!(name(&after, "two", "admin@kind"), "admin-kind");
    assert_eq!(name(&after, "two", "admin_kind"), "admin-kind-2");
    assert_eq!(name(&after, "two", "admin-kind"), "admin-kind-3");
    assert!(rejected.is_empty());
    // A restart names them anew.
    let (anew, _) = folder.load(&["one", "two"], &Names::new());
    assert_eq!(name(&anew, "two", "admin-kind"), "admin-kind");

    // In a file that comes before: the newcomer is reported.
    folder.write("two", &kubeconfig(&["beta"]));
    folder.write("one", &kubeconfig(&["beta"]));
    let (after, rejected) = folder.load(&["one", "two"], &before);
    assert_eq!((name(&after, "one", "beta").as_str(), after.len()), ("", 1));
    assert!(
        rejected[0].contains("another source has a cluster \"beta\" already"),
        "{rejected:?}"
    );

    // One file twice: each of its contexts is one cluster.
    let (twice, rejected) = folder.load(&["two", "two"], &before);
    assert_eq!(
        (name(&twice, "two", "beta").as_str(), twice.len()),
        ("beta", 1)
    );
    assert!(
        rejected[0].contains("context \"beta\" of")
            && rejected[0].contains("another source names it already"),
        "{rejected:?}"
    );

    // A name whose cluster is gone is free.
    folder.write("two", &kubeconfig(&["other"]));
    let (after, rejected) = folder.load(&["one", "two"], &before);
    assert_eq!(name(&after, "one", "beta"), "beta");
    assert!(rejected.is_empty());
}

/// What another proxy wrote is a kubeconfig of clusters, but for its fleet.
#[test]
fn the_fleet_of_another_proxy_is_no_cluster() {
    use crate::serving_kubeconfig::ServingKubeconfig;

    let folder = Folder::new();
    let check = |clusters: &[&str], served: &[&str], fleet: Option<&str>| {
        let clusters = clusters.iter().copied();
        let other = ServingKubeconfig::new("https://127.0.0.1:9443", None, Some("t"), clusters);
        folder.write("other", &other.to_yaml());
        let (names, rejected) = folder.load(&["other", "one"], &Names::new());
        let names: std::collections::BTreeSet<_> = names.into_values().collect();
        assert!(names.iter().eq(served), "{names:?}");
        let reason = |fleet| {
            let path = folder.path("other");
            format!(
                "context {fleet:?} of {} is the fleet of another fleetcache and no cluster; leave it out by naming the others \
                 with --context, or give another kubeconfig",
                path.display()
            )
        };
        assert_eq!(rejected, Vec::from_iter(fleet.map(reason)));
    };
    folder.write("one", &kubeconfig(&["x"]));
    check(&["a", "b"], &["a", "b", "x"], Some("fleet"));
    check(
        &["a", "fleet"],
        &["a", "fleet", "x"],
        Some("fleet@fleetcache"),
    );
    check(&[], &["x"], Some("fleet"));
    // Somebody's cluster of that name.
    folder.write("one", &kubeconfig(&["fleet"]));
    folder.write("other", &kubeconfig(&["a"]));
    let (names, rejected) = folder.load(&["other", "one"], &Names::new());
    assert_eq!((names.len(), rejected), (2, Vec::new()));
}

#[test]
fn every_mistake_of_a_configuration_is_told_with_its_path() {
    let folder = Folder::new();
    folder.write("good", &kubeconfig(&["a", "b"]));
    folder.write("damaged", "contexts: [");
    folder.write("empty", "");
    folder.write("file", "");
    let lost = kubeconfig(&["a", "lost"]).replacen("\"cluster\":\"k\"", "\"cluster\":\"none\"", 1);
    folder.write("lost", &lost);
    folder.write(
        "own",
        &kubeconfig(&["me"]).replace("127.0.0.1:1", "127.0.0.1:8443/clusters/a"),
    );
    let check = |rest: &str, mistakes: &[&str], warnings: &[&str]| {
        let text = format!("apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n{rest}");
        folder.write("fleetcache.yaml", &text);
        let path = folder.path("fleetcache.yaml");
        let found = check_file(&path, &|name| (name == "HOME").then(|| "/home/a".into()));
        let shorter = |line: &str| {
            let folder = format!("{}/", folder.0.path().display());
            line.replace(&folder, "").replace("fleetcache.yaml: ", "")
        };
        let told = found.mistakes.to_string();
        let told: Vec<_> = told.lines().map(shorter).collect();
        assert_eq!(told, mistakes, "{rest}");
        let told: Vec<_> = found.warnings.iter().map(|it| shorter(it)).collect();
        assert_eq!(told, warnings, "{rest}");
    };
    check("", &[], &[]);
    check("clusters: { kubeconfigs: [ { path: good } ] }", &[], &[]);
    check(
        "stateDir: file\nclusters: { kubeconfigs: [ { path: missing }, { path: damaged }, { path: empty }, { path: good, \
         contexts: [a, c] } ] }",
        &[
            "stateDir: file is not a directory",
            "clusters.kubeconfigs[0].path: missing: it cannot be read: No such file or directory (os error 2); check the path and its permissions",
            "clusters.kubeconfigs[1].path: damaged: it is not a kubeconfig: line 1, column 11 cannot be read; check it with kubectl config view",
            "clusters.kubeconfigs[2].path: empty has no contexts",
            "clusters.kubeconfigs[3].contexts[1]: context \"c\" is not in good; name one of [\"a\", \"b\"]",
        ],
        &[],
    );
    let problem = "lost: context \"a\": cluster \"none\" is not defined; add it under clusters";
    check(
        "clusters: { kubeconfigs: [ { path: lost } ] }",
        &[],
        &[&format!("clusters.kubeconfigs[0]: not served: {problem}")],
    );
    check(
        "clusters: { kubeconfigs: [ { path: lost, contexts: [a, lost] } ] }",
        &[&format!("clusters.kubeconfigs[0].contexts[0]: {problem}")],
        &[],
    );
    check(
        "clusters: { kubeconfigs: [ { path: good }, { path: lost } ] }\noverrides: [ { cluster: a }, { cluster: 'edge-*' } ]",
        &[],
        &[
            &format!("clusters.kubeconfigs[1]: not served: {problem}"),
            "overrides[1].cluster: \"edge-*\" matches no cluster",
        ],
    );
    check(
        "clusters: { kubeconfigs: [ { path: good } ] }\nauthentication: { tokenReview: { cluster: a } }",
        &[],
        &[],
    );
    check(
        "clusters: { kubeconfigs: [ { path: good } ] }\nauthentication: { tokenReview: { cluster: c } }",
        &[],
        &["authentication.tokenReview.cluster: there is no cluster \"c\""],
    );
    check(
        "clusters: { kubeconfigs: [ { path: good }, { path: own } ] }",
        &[
            "clusters.kubeconfigs[1]: context \"me\" of own is this proxy itself (its server is \
           https://127.0.0.1:8443/clusters/a); leave it out by naming the others with --context, or give another kubeconfig",
        ],
        &[],
    );
    // Served, and nobody could be shown anything.
    let user = |user: &str| kubeconfig(&["a", "b"]).replace(r#""token":"t""#, user);
    folder.write("token", "t");
    folder.write("by-file", &user(r#""tokenFile":"token""#));
    folder.write("no-token", &user(r#""tokenFile":"none""#));
    let files = r#""client-certificate":"none.crt","client-key":"none.key""#;
    folder.write("no-certificate", &user(files));
    let away = "cannot be read: No such file or directory (os error 2)";
    let no_token = |context: &str| format!("no-token: context {context:?}: tokenFile none {away}");
    check(
        "clusters: { kubeconfigs: [ { path: by-file, contexts: [b] }, { path: no-token, contexts: [a] } ], secrets: { kubeconfig: \
         no-certificate, context: a, labelSelector: a } }",
        &[
            &format!("clusters.kubeconfigs[1]: {}", no_token("a")),
            &format!(
                "clusters.secrets.kubeconfig: no-certificate: context \"a\": client-certificate none.crt {away}"
            ),
            &format!(
                "clusters.secrets.kubeconfig: no-certificate: context \"a\": client-key none.key {away}"
            ),
        ],
        &[],
    );
    std::fs::create_dir(folder.path("e")).unwrap();
    let one = user(r#""tokenFile":"../none""#);
    folder.write(
        "e/x.kubeconfig",
        &one.replace(r#""kind""#, r#""current-context":"a","kind""#),
    );
    check(
        "clusters: { directory: { path: e } }",
        &[],
        &[&format!(
            "clusters.directory: e/x.kubeconfig: context \"a\": tokenFile e/../none {away}"
        )],
    );
    std::fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/x.kubeconfig", &kubeconfig(&["a"]));
    folder.write("d/z.kubeconfig", "contexts: [");
    folder.write(
        "d/me.kubeconfig",
        &kubeconfig(&["me"]).replace("127.0.0.1:1", "127.0.0.1:8443/clusters/a"),
    );
    check(
        "clusters: { directory: { path: d } }\noverrides: [ { cluster: x }, { cluster: z } ]",
        &[],
        &[
            "clusters.directory: not served: d/me.kubeconfig: it is this proxy itself; name the cluster's own server",
            "clusters.directory: not served: d/z.kubeconfig: it is not a kubeconfig: line 1, column 11 cannot be read; check it \
             with kubectl config view",
            "overrides[1].cluster: \"z\" matches no cluster",
        ],
    );
    check(
        "clusters: { directory: { path: none }, clusterAPI: { kubeconfig: missing, useControlPlaneSecret: true }, secrets: { \
         kubeconfig: good, context: c, labelSelector: a } }",
        &[
            "clusters.clusterAPI.kubeconfig: missing: it cannot be read: No such file or directory (os error 2); check the path and its permissions",
            "clusters.secrets.kubeconfig: good: it has no context \"c\"; name one of [\"a\", \"b\"]",
        ],
        &[
            "clusters.directory.path: not served: none: it cannot be read: No such file or directory (os error 2); check the path and its permissions",
        ],
    );
    check(
        "clusters: { directory: { path: none } }",
        &[],
        &[
            "clusters.directory.path: not served: none: it cannot be read: No such file or directory (os error 2); check the path and its permissions",
        ],
    );
    // Which clusters there are, nobody knows here.
    check(
        "clusters: { clusterAPI: { kubeconfig: good, context: a, useControlPlaneSecret: true } }\noverrides: [ { cluster: x } ]",
        &[],
        &[],
    );
    check(
        "listen: 127.0.0.1:8081",
        &[
            "listen: the admin port (127.0.0.1:8081) and the HTTPS port (127.0.0.1:8081) exclude each other; choose another for one",
        ],
        &[],
    );
}

#[test]
fn credentials_that_others_may_read_and_odd_ones_are_warned_of() {
    let folder = Folder::new();
    let mode = |name: &str, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path(name), mode).unwrap();
    };
    mode("", 0o755);
    let pair = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    folder.write("tls.crt", &pair.cert.pem());
    folder.write("tls.key", &pair.signing_key.serialize_pem());
    let by_file = kubeconfig(&["a"]).replace(r#""token":"t""#, r#""tokenFile":"token""#);
    folder.write("by-file", &by_file);
    folder.write("token", "two words");
    folder.write("tokens.csv", "");
    std::fs::create_dir(folder.path("d")).unwrap();
    let one = kubeconfig(&["b"]).replace(r#""kind""#, r#""current-context":"b","kind""#);
    folder.write("d/x.kubeconfig", &one);
    let text = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
                clusters: { kubeconfigs: [ { path: by-file } ], directory: { path: d }, secrets: { kubeconfig: d/x.kubeconfig, labelSelector: a } }\n\
                tls: { certFile: tls.crt, keyFile: tls.key }\nauthentication: { tokenFile: tokens.csv }\n";
    folder.write("fleetcache.yaml", text);
    let secrets = [
        "by-file",
        "d/x.kubeconfig",
        "tls.key",
        "token",
        "tokens.csv",
    ];
    let told = |modes: u32| {
        secrets.iter().for_each(|it| mode(it, modes));
        let found = check_file(&folder.path("fleetcache.yaml"), &|_| Some("/home/a".into()));
        assert_eq!(found.mistakes.to_string(), "");
        let prefix = format!("{}/", folder.0.path().display());
        let told = found.warnings.iter();
        told.map(|it| it.replace(&prefix, "").replace("fleetcache.yaml: ", ""))
            .collect::<Vec<_>>()
    };
    let exposed = |name: &str| {
        format!("every user of this machine may read {name}, which is for secrets: chmod o= {name}")
    };
    let odd = [
        "authentication.tokenFile: tokens.csv: there is no token in it, and nobody is known by it".to_owned(),
        "clusters.kubeconfigs[0]: by-file: context \"a\": tokenFile token: there is a space or a control character in the token, and \
         kube-apiserver reads a token up to the first space".to_owned(),
    ];
    assert_eq!(told(0o640), odd);
    let [empty, spaced] = odd;
    assert_eq!(
        told(0o644),
        [
            // Not the kubeconfig that names the token's file.
            exposed("d/x.kubeconfig"),
            format!("tls.keyFile: {}", exposed("tls.key")),
            format!("authentication.tokenFile: {}", exposed("tokens.csv")),
            empty,
            spaced,
            format!(
                "clusters.kubeconfigs[0]: by-file: context \"a\": {}",
                exposed("token")
            ),
            format!("clusters.directory: {}", exposed("d/x.kubeconfig")),
        ]
    );
}

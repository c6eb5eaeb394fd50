//! kubectl on the fleet: everything that it can do with a resource that can only be read.

use fleetcache_e2e::control_plane::{User, control_plane};
use fleetcache_e2e::sim::{Fault, SimCluster, SimConfig};

use super::{is_at_rest, object_when, root, serve};

#[tokio::test]
async fn the_fleet_is_read_and_watched_with_kubectl() {
    let real = control_plane().await;
    let sim = SimCluster::start(SimConfig::new("edge")).await.unwrap();
    let endpoints = [
        ("edge", &sim.context()),
        ("main", &real.context(User::Proxy).unwrap()),
    ];
    let proxy = serve(&endpoints, None).await;
    let client = root(&proxy);
    for name in ["edge", "main"] {
        object_when(&client, name, "the cluster to be at rest", is_at_rest).await;
    }
    let kubectl = proxy.kubectl("fleet").await.unwrap();
    let run = async |command: &str| {
        let args: Vec<_> = command.split(' ').collect();
        kubectl.run(&args).await.unwrap()
    };
    let ok = async |command: &str| run(command).await.ok().unwrap();

    let table = ok("get clusterconnections").await;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let head = "NAME STATE REASON SERVER VERSION LAST SUCCESS INFORMERS OBJECTS MEMORY AGE";
    assert_eq!(lines[0].join(" "), head);
    assert_eq!(
        (lines[1][0], lines[2][0], lines[1][1]),
        ("edge", "main", "Connected")
    );
    let wide = ok("get cc -o wide").await;
    let head = wide.lines().next().unwrap();
    let head = head.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        head.contains(" AGE NEXT TRY LAST PROBE FAILURES "),
        "{wide}"
    );
    assert!(head.ends_with(" MESSAGE HINT"), "{wide}");
    assert_eq!(ok("get cc -o name").await.lines().count(), 2);
    let yaml = ok("get cc edge -o yaml").await;
    assert!(yaml.contains("kind: ClusterConnection") && yaml.contains("state: Connected"));
    assert!(!yaml.contains("127.0.0.1"), "no address: {yaml}");
    assert!(
        ok("describe cc main")
            .await
            .contains("RemoteConnectionProbe")
    );
    assert!(ok("get cc --sort-by=.status.state").await.contains("edge"));
    assert!(
        ok("get cc --field-selector metadata.name=edge --no-headers")
            .await
            .starts_with("edge")
    );
    assert_eq!(ok("get cc -l a=b -o name").await, "");
    assert!(
        ok("get cc --chunk-size=1 -o name").await.contains("main"),
        "in pages"
    );
    assert!(
        ok("api-resources")
            .await
            .contains("fleetcache.dev/v1alpha1")
    );
    assert!(
        ok("explain clusterconnections.status")
            .await
            .contains("lastProbeSuccessTime")
    );
    assert!(
        ok("explain cc.spec.source.kind")
            .await
            .contains("ClusterAPI")
    );
    assert!(
        ok("version")
            .await
            .contains("Server Version: v1.36.0+fleetcache")
    );
    assert!(
        ok("get --raw /apis/fleetcache.dev/v1alpha1")
            .await
            .contains("clusterconnection")
    );
    assert!(ok("auth whoami").await.contains("Username"));
    assert!(
        ok("wait --for=condition=Connected cc --all --timeout=30s")
            .await
            .contains("main condition met")
    );
    assert!(
        ok("wait --for=jsonpath={.status.state}=Connected cc/edge --timeout=30s")
            .await
            .contains("met")
    );
    for (command, words) in [
        (
            "get cc nope",
            "clusterconnections.fleetcache.dev \"nope\" not found",
        ),
        (
            "delete cc edge",
            "the server does not allow this method on the requested resource",
        ),
        (
            "label cc edge a=b",
            "the server does not allow this method on the requested resource",
        ),
        (
            "get nodes",
            "the server doesn't have a resource type \"nodes\"",
        ),
        (
            "auth can-i list cc",
            "the server could not find the requested resource; paths begin with /clusters/NAME/",
        ),
        ("get all", "the server doesn't have a resource type \"all\""),
        (
            "get cc --field-selector spec.context=a",
            "field label not supported: spec.context",
        ),
    ] {
        let output = run(command).await;
        assert!(
            output.code != Some(0) && output.stderr.contains(words),
            "{command}: {output:?}"
        );
    }

    // One goes down and comes back, and whoever watches is told.
    let mut watch = kubectl
        .start_watching(&["get", "cc", "--watch", "--no-headers"])
        .await
        .unwrap();
    let mut until = async |state: &str| loop {
        let line = watch.next_line().await.unwrap().expect("it goes on");
        let words: Vec<_> = line.split_whitespace().collect();
        if words[0] == "edge" && words[1] == state {
            return line;
        }
    };
    until("Connected").await;
    sim.fault(Fault::Refuse);
    sim.fault(Fault::Cut);
    let gone = until("Disconnected").await;
    assert!(gone.contains("ConnectionRefused"), "{gone}");
    let hints = "get cc edge -o jsonpath={.status.hint}";
    assert!(ok(hints).await.starts_with("check that the kube-apiserver"));
    assert_eq!(ok("get cc main -o jsonpath={.status.hint}").await, "");
    let unmet = run("wait --for=condition=Connected cc/edge --timeout=1s").await;
    assert_ne!(unmet.code, Some(0), "{unmet:?}");
    let waiting = run("wait --for=condition=Connected cc/edge --timeout=100s");
    let healed = async {
        sim.heal().unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, healed);
    assert!(waited.ok().unwrap().contains("condition met"));
    until("Connected").await;
}

/// Whoever has no token learns nothing, not even what is served.
#[tokio::test]
async fn nothing_is_told_without_a_credential() {
    let sim = SimCluster::start(SimConfig::new("a")).await.unwrap();
    let proxy = serve(&[("a", &sim.context())], None).await;
    let nobody = fleetcache_e2e::kubeconfig::Context {
        credential: fleetcache_e2e::kubeconfig::Credential::None,
        ..proxy.root().unwrap()
    };
    let client = fleetcache_e2e::client::Client::new(&nobody).unwrap();
    for path in [
        "/api",
        "/apis",
        "/apis/fleetcache.dev",
        "/apis/fleetcache.dev/v1alpha1",
        "/version",
        "/openapi/v3",
        super::PATH,
        "/nope",
    ] {
        let answer = client.get(path).await.unwrap();
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.json().unwrap()["reason"], "Unauthorized", "{path}");
    }
    let impersonating = [("impersonate-user", "somebody")];
    let answer = root(&proxy)
        .get_with(super::PATH, &impersonating)
        .await
        .unwrap();
    assert_eq!(answer.status, 403);
}

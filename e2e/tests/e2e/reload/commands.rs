//! The other commands of the binary: they check what is given, and ask a proxy that runs.

use super::*;

#[tokio::test]
async fn mistakes_are_told_before_the_start() {
    let changing = Changing::start().await;
    let path = config_path(&changing.files);
    let path = path.to_str().unwrap();
    let (code, text) = fleetcache(&["config", "check", path]).await;
    assert_eq!((code, text), (Some(0), format!("{path}: no mistakes\n")));
    changing.configure("speed: fast\ndefaults: { maxInFlight: 0 }");
    let (code, text) = fleetcache(&["config", "check", path]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.starts_with("fleetcache: 2 mistakes in the configuration\n"),
        "{text}"
    );
    // All that there is to say of the files it names, beside the mistakes too.
    let tokens = changing.files.path().join("tokens.csv");
    std::fs::write(&tokens, "t1,alice,1,\nt2\nt3,system:admin,3\nt4,,\n").unwrap();
    changing.configure(&format!(
        "authentication: {{ tokenFile: {} }}",
        tokens.display()
    ));
    let (code, text) = fleetcache(&["config", "check", path]).await;
    assert_eq!(code, Some(2), "{text}");
    let at = format!(
        "{path}: authentication.tokenFile: {}: line",
        tokens.display()
    );
    for line in [
        format!("fleetcache: warning: {at} 1: a group without a name"),
        format!("fleetcache: warning: {at} 3: nobody has this token"),
        "fleetcache: 2 mistakes in the configuration".to_owned(),
        format!("{at} 2: at least 3 columns"),
        format!("{at} 4: the user has no name"),
    ] {
        assert!(
            text.lines().any(|it| it.starts_with(&line)),
            "{line}: {text}"
        );
    }
    changing.configure("");
    std::fs::remove_file(changing.kubeconfig()).unwrap();
    let (code, text) = fleetcache(&["config", "check", path]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("clusters.kubeconfigs[0].path: "), "{text}");
    let (code, text) = fleetcache(&["config", "schema"]).await;
    assert_eq!(code, Some(0));
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
}

#[tokio::test]
async fn a_proxy_tells_why_a_request_goes_live() {
    let changing = Changing::start().await;
    write_kubeconfig(
        &changing.kubeconfig(),
        &[changing.alpha.context(), changing.beta.context()],
    );
    changing.served("beta").await;
    let alpha = changing.client("alpha");
    warm(&alpha, LIST).await;
    let why = async |args: &[&str]| {
        let args = [&["why", "--admin", changing.proxy.admin()], args].concat();
        let (code, text) = fleetcache(&args).await;
        assert_eq!(code, Some(0), "{text}");
        text
    };
    let before = (changing.alpha.counts(), changing.proxy.metrics().unwrap());
    let text = why(&["/clusters/alpha/api/v1/configmaps?limit=500"]).await;
    assert!(
        text.starts_with("list configmaps.v1 of cluster \"alpha\": from memory\n"),
        "{text}"
    );
    assert!(
        text.contains("informer: synced, holds json, complete through resourceVersion "),
        "{text}"
    );
    for (args, first, informer) in [
        (
            &["https://proxy:8443/clusters/alpha/api/v1/namespaces/default/pods"][..],
            "list pods.v1 in namespace \"default\" of cluster \"alpha\": live (not-started)",
            "informer: not started",
        ),
        (
            &["/clusters/alpha/api/v1/secrets"],
            "list secrets.v1 of cluster \"alpha\": live (never)",
            "",
        ),
        (
            &[
                "DELETE",
                "/clusters/alpha/api/v1/namespaces/default/configmaps/a",
            ],
            "delete configmaps.v1 in namespace \"default\" \"a\" of cluster \"alpha\": live (method)",
            "",
        ),
        (
            &["/clusters/alpha/api/v1/namespaces/default/configmaps/a"],
            "get configmaps.v1 in namespace \"default\" \"a\" of cluster \"alpha\": live (absent)",
            "informer: synced",
        ),
        (
            &[
                "/clusters/alpha/api/v1/configmaps",
                "-H",
                "Accept: application/yaml",
            ],
            "list configmaps.v1 of cluster \"alpha\": live (representation)",
            "informer: synced, holds json",
        ),
        (
            &[
                "/clusters/alpha/api/v1/configmaps",
                "-H",
                "Accept: application/vnd.kubernetes.protobuf",
            ],
            "list configmaps.v1 of cluster \"alpha\": live (not-started)",
            "informer: not started",
        ),
        (
            &["/clusters/alpha/apis"],
            "get /apis of cluster \"alpha\": live (document)",
            "",
        ),
        (
            &["/clusters/alpha/apis", "-H", "Cache-Control: no-cache"],
            "get /apis of cluster \"alpha\": live (path)",
            "",
        ),
        (
            &[
                "/clusters/alpha/api/v1/configmaps",
                "-H",
                "Impersonate-User: root",
            ],
            "list configmaps.v1 of cluster \"alpha\": error (ImpersonationRefused)",
            "",
        ),
        (
            &["/clusters/gamma/api/v1/configmaps"],
            "list configmaps.v1 of cluster \"gamma\": error (not-found)",
            "There is no cluster \"gamma\"; there are: alpha, beta.",
        ),
        (
            &["/api/v1/pods"],
            "GET /api/v1/pods: error (not-found)",
            "/clusters/<name>",
        ),
        (
            &["/apis/fleetcache.dev/v1alpha1/clusterconnections/alpha"],
            "get clusterconnections.v1alpha1.fleetcache.dev \"alpha\" of the fleet: by the proxy itself",
            "The proxy answers it itself",
        ),
    ] {
        let text = why(args).await;
        assert_eq!(text.lines().next(), Some(first), "{text}");
        assert!(text.contains(informer), "{text}");
        assert!(
            !informer.is_empty() || !text.contains("informer:"),
            "{text}"
        );
    }
    // Nothing was sent and nothing started.
    let after = (changing.alpha.counts(), changing.proxy.metrics().unwrap());
    for kind in ["configmaps", "pods", "secrets"] {
        assert_eq!(
            after.0.requests("list", kind),
            before.0.requests("list", kind),
            "{kind}"
        );
        assert_eq!(
            after.0.requests("get", kind),
            before.0.requests("get", kind),
            "{kind}"
        );
    }
    let informers = |of: &fleetcache_e2e::proxy::Metrics| of.get("fleetcache_informers");
    assert_eq!(informers(&after.1), informers(&before.1));

    changing.beta.kill();
    wait_for("beta to be told as not connected", PATIENCE, async || {
        let text = why(&["/clusters/beta/api/v1/pods"]).await;
        let told = text.contains("error (ConnectionRefused)\nThe cluster is not connected (")
            && text.contains(" Hint: check that the kube-apiserver");
        if told { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    let (code, text) = fleetcache(&["why", "--admin", "127.0.0.1:1", "/clusters/a"]).await;
    assert_eq!(code, Some(1));
    assert!(
        text.contains("no proxy answers at 127.0.0.1:1; name its admin port with --admin"),
        "{text}"
    );
    let port = changing.proxy.url().trim_start_matches("https://");
    let (code, text) = fleetcache(&["why", "--admin", port, "/clusters/a"]).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("is not the admin port"), "{text}");
    let url = format!("http://{}/", changing.proxy.admin());
    let (code, text) = fleetcache(&["why", "--admin", &url, "/clusters/alpha/api"]).await;
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test]
async fn mistakes_in_arguments_end_a_command_with_2() {
    let changing = Changing::start().await;
    let state_dir = changing.proxy.kubeconfig().parent().unwrap().to_owned();
    let state_dir = state_dir.to_str().unwrap();
    for (args, expect) in [
        (&["why"][..], "Usage: fleetcache why"),
        (&["why", "GET"], "the path or URL is missing"),
        (&["why", "LIST", "/clusters/a"], "is not a method"),
        (&["why", "-H", "Accept", "/clusters/a"], "is not a header"),
        (
            &["why", "--admin", "8081", "/clusters/a"],
            "is not an address",
        ),
        (
            &["kubeconfig", "--state-dir", state_dir, "--server", "foo"],
            "is not a URL",
        ),
        (
            &["kubeconfig", "--state-dir", state_dir, "--cluster", "nope"],
            "no cluster \"nope\"; there are: alpha",
        ),
    ] {
        let (code, text) = fleetcache(args).await;
        assert_eq!(code, Some(2), "{args:?}: {text}");
        assert!(text.contains(expect), "{args:?}: {text}");
    }
}

//! Programs that print credentials, and programs that do not.

use super::*;

/// A user whose plugin runs this script. Its output is a token, if it has none of its own.
fn plugin(script: &str) -> String {
    let script = serde_json::to_string(script).unwrap();
    format!(
        "exec: {{ apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never, args: [ -c, {script} ] }}"
    )
}

fn prints(token: &str, expires: Option<&str>) -> String {
    let mut status = json!({ "token": token });
    if let Some(expires) = expires {
        status["expirationTimestamp"] = expires.into();
    }
    let answer = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status});
    format!("echo '{answer}'")
}

#[tokio::test]
async fn four_plugins_run_at_once_and_one_that_hangs_harms_no_other_cluster() {
    let files = Files::new();
    let (go, runs) = (files.path("go"), files.path("runs"));
    let mut clusters = Vec::new();
    let mut entries = Vec::new();
    for n in 0..12 {
        let cluster = SimCluster::start(SimConfig::new(format!("c{n}")))
            .await
            .unwrap();
        let token = cluster.token();
        let user = match n {
            // One without a plugin, and one whose plugin hangs, whatever it is asked to do.
            10 => format!("token: {token}"),
            11 => plugin("trap '' TERM INT HUP; while :; do sleep 1; done"),
            _ => plugin(&format!(
                "echo + >> {runs}; while [ ! -e {go} ]; do sleep 0.1; done; echo - >> {runs}; {}",
                prints(&token, None),
                runs = runs.display(),
                go = go.display()
            )),
        };
        entries.push(Entry::new(&cluster.context(), user));
        clusters.push(cluster);
    }
    write_kubeconfig(&files.path("kubeconfig"), &entries);
    let proxy = files.serve("").await;
    let started = || {
        std::fs::read_to_string(&runs)
            .unwrap_or_default()
            .matches('+')
            .count()
    };
    // The one that hangs may be among the first four.
    wait_for("the first plugins", PATIENCE, async || {
        anyhow::ensure!(started() >= 3, "{}", started());
        Ok(())
    })
    .await
    .unwrap();
    // Nobody else waits for them: not a cluster without a plugin, nor its clients.
    let plain = proxy.client("c10").unwrap();
    connected(&plain).await;
    warm(&plain, CONFIGMAPS).await;
    let waiting = proxy.client("c0").unwrap().get(CONFIGMAPS).await.unwrap();
    assert_eq!(waiting.status, 503, "{}", waiting.text());
    assert!(
        waiting.text().contains("waiting for the credential plugin"),
        "{}",
        waiting.text()
    );
    std::fs::write(&go, "").unwrap();
    for n in 0..10 {
        connected(&proxy.client(&format!("c{n}")).unwrap()).await;
    }
    let (mut running, mut most) = (0_i32, 0);
    for line in std::fs::read_to_string(&runs).unwrap().lines() {
        running += if line == "+" { 1 } else { -1 };
        most = most.max(running);
    }
    assert!((3..=4).contains(&most), "{most} at once");
    assert_eq!(started(), 10, "each ran once");
    // It is ended at its deadline, told, and tried again.
    let hangs = proxy.client("c11").unwrap();
    wait_for(
        "the deadline of the plugin that hangs",
        PATIENCE,
        async || {
            let answer = hangs.get(CONFIGMAPS).await?;
            assert_eq!(answer.status, 503);
            let text = answer.text();
            anyhow::ensure!(
                text.contains("CredentialMissing") && text.contains("did not end within 30 s"),
                "{text}"
            );
            Ok(())
        },
    )
    .await
    .unwrap();
    for n in 0..11 {
        connected(&proxy.client(&format!("c{n}")).unwrap()).await;
    }
    assert_eq!(lines(&proxy, &[CONNECTED]), 11, "{}", proxy.log());
}

#[tokio::test]
async fn a_plugins_credential_that_cannot_be_renewed_serves_until_the_server_refuses_it() {
    let cluster = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    let files = Files::new();
    let (token, runs) = (cluster.token(), files.path("runs"));
    // It has ended when it comes, so a new one is asked for as soon as may be; there is none.
    let user = plugin(&format!(
        "echo >> {runs}; [ $(wc -l < {runs}) = 1 ] || {{ echo 'please log in' >&2; exit 1; }}; {}",
        prints(&token, Some("2020-01-01T00:00:00Z")),
        runs = runs.display()
    ));
    let entry = Entry::new(&cluster.context(), user);
    write_kubeconfig(&files.path("kubeconfig"), &[entry]);
    let proxy = files.serve("").await;
    let client = proxy.client("sim").unwrap();
    connected(&client).await;
    warm(&client, CONFIGMAPS).await;
    let ran = || {
        std::fs::read_to_string(&runs)
            .unwrap_or_default()
            .lines()
            .count()
    };
    wait_for("two renewals in vain", PATIENCE, async || {
        client.get(SECRETS).await?.ok()?;
        assert!(client.get(CONFIGMAPS).await?.is_hit());
        anyhow::ensure!(ran() >= 3, "{}", ran());
        Ok(())
    })
    .await
    .unwrap();
    logged(&proxy, 1, &["credential not renewed", "please log in"]).await;
    assert_eq!(
        lines(&proxy, &["credential not renewed"]),
        1,
        "{}",
        proxy.log()
    );
    assert_undisturbed(&proxy, 1);
    cluster.accept_tokens(vec!["another".to_owned()]);
    wait_for("its refusal to be told", PATIENCE, async || {
        let answer = client.get(SECRETS).await?;
        anyhow::ensure!(answer.status == 503, "{}", answer.status);
        Ok(())
    })
    .await
    .unwrap();
}

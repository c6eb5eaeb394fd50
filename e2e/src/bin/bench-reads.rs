//! CPU per answer: LIST and GET from the proxy's memory beside the same kube-apiserver, in one run.
//!
//! Rounds of both alternate, the CPU of each server process is read from /proc before and after a round, and the medians
//! are printed with their ratio. Numbers depend on the machine; the ratio much less. Then: how long a GET from memory takes
//! while another client asks for what is long to make, beside a GET while nobody does.
#![allow(clippy::print_stdout, reason = "the table is what it is run for")]

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use clap::Parser;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, Server};
use fleetcache_e2e::measure::{cpu_seconds, median, resident_bytes};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

/// CPU per answer of cached reads, beside the kube-apiserver they come from.
#[derive(Parser)]
struct Args {
    /// Pods to create.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Rounds of each server; they alternate.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// LISTs of a round.
    #[arg(long, default_value_t = 4)]
    lists: usize,
    /// GETs of a round.
    #[arg(long, default_value_t = 3_000)]
    gets: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let cluster = ControlPlane::start(Options::named("bench")).await?;
    let direct = cluster.client()?;
    eprintln!("creating {} pods", args.pods);
    create_pods(&direct, args.pods).await?;

    let proxy = Proxy::start(proxy::Options {
        kubeconfigs: vec![cluster.kubeconfig()],
        // As users have it, and not as tests do.
        self_check_interval: Some("5m".to_owned()),
        ..proxy::Options::default()
    })
    .await?;
    let proxied = proxy.client("bench")?;
    let list = "/api/v1/pods";
    wait_for("the informer to sync", PATIENCE, || async {
        match proxied.get(list).await {
            Ok(answer) if answer.is_hit() => Ok(()),
            Ok(answer) => Err(answer.cache_status().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;

    let apiserver = cluster
        .pid(Server::Apiserver)
        .context("kube-apiserver runs")?;
    let servers = [
        ("kube-apiserver", apiserver, &direct),
        ("fleetcache", proxy.id(), &proxied),
    ];
    println!("pods: {}", args.pods);
    let one_namespace = "/api/v1/namespaces/bench-0/pods";
    let one = "/api/v1/namespaces/bench-0/pods/pod-0";
    let one_cached = "/api/v1/namespaces/bench-0/pods/pod-0?resourceVersion=0";
    for (what, path, count) in [
        ("LIST all, JSON", list, args.lists),
        ("LIST one namespace, JSON", one_namespace, args.lists * 20),
        ("GET, resourceVersion unset", one, args.gets),
        ("GET, resourceVersion=0", one_cached, args.gets),
    ] {
        let mut rounds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for _ in 0..args.rounds {
            for (name, pid, client) in servers {
                let before = cpu_seconds(pid)?;
                for _ in 0..count {
                    let answer = client.get(path).await?.ok()?;
                    ensure!(
                        name == "kube-apiserver" || answer.is_hit(),
                        "{}",
                        answer.cache_status()
                    );
                }
                let per_answer = (cpu_seconds(pid)? - before) * 1000.0 / count as f64;
                rounds.entry(name).or_default().push(per_answer);
            }
        }
        let [theirs, ours] = servers.map(|(name, ..)| median(&rounds[name]));
        println!(
            "{what:28} kube-apiserver {theirs:9.3} ms  fleetcache {ours:9.3} ms  ratio {:.3}",
            ours / theirs
        );
    }
    let mut alone = None;
    for (what, load) in [
        ("nothing", None),
        (
            "LIST all, none selected",
            Some("/api/v1/pods?labelSelector=tier%3Dnone"),
        ),
        ("LIST all", Some(list)),
        ("LIST all, indented", Some("/api/v1/pods?pretty=true")),
    ] {
        let (median, high) = get_beside(&proxy, one_cached, load, args.gets).await?;
        let (median_alone, high_alone) = *alone.get_or_insert((median, high));
        println!(
            "GET beside {what:25} median {:8.3} ms ({:5.1} times)  99th percentile {:8.3} ms ({:5.1} times)",
            median * 1000.0,
            median / median_alone,
            high * 1000.0,
            high / high_alone,
        );
    }
    println!(
        "fleetcache resident: {} MiB",
        resident_bytes(proxy.id())? >> 20
    );
    println!(
        "kube-apiserver resident: {} MiB",
        resident_bytes(apiserver)? >> 20
    );
    Ok(())
}

/// Median and 99th percentile, in seconds, of GETs while another client repeats a LIST.
async fn get_beside(
    proxy: &Proxy,
    path: &str,
    load: Option<&str>,
    count: usize,
) -> anyhow::Result<(f64, f64)> {
    let (gets, lists) = (proxy.client("bench")?, proxy.client("bench")?);
    // In a task of its own, and read without keeping it, so that it is not this process in which the GETs wait.
    let load = load.map(|load| {
        let load = load.to_owned();
        tokio::spawn(async move {
            loop {
                let answer = lists.open(Method::GET, &load, &[], "").await?;
                ensure!(answer.status() == 200, "{}", answer.status());
                let mut body = answer.into_body();
                while let Some(frame) = body.frame().await {
                    frame?;
                }
            }
        })
    });
    let mut times = Vec::new();
    for _ in 0..count {
        let answer = gets.get(path).await?.ok()?;
        ensure!(answer.is_hit(), "{}", answer.cache_status());
        times.push(answer.elapsed.as_secs_f64());
    }
    if let Some(load) = load {
        load.abort();
        if let Ok(failed) = load.await {
            return failed;
        }
    }
    times.sort_by(f64::total_cmp);
    Ok((times[count / 2], times[count * 99 / 100]))
}

/// Pods of some 10 kB with their managedFields, 500 to a namespace.
async fn create_pods(client: &Client, pods: usize) -> anyhow::Result<()> {
    for namespace in 0..pods.div_ceil(500) {
        let name = format!("bench-{namespace}");
        let object = json!({"metadata": {"name": name}});
        client.create("/api/v1/namespaces", &object).await?.ok()?;
    }
    stream::iter((0..pods).map(|at| async move {
        let path = format!("/api/v1/namespaces/bench-{}/pods", at / 500);
        client.create(&path, &pod(at)).await?.ok()
    }))
    .buffer_unordered(16)
    .try_for_each(|_| async { Ok(()) })
    .await
}

fn pod(at: usize) -> Value {
    let container = |name: usize| {
        let env: Vec<Value> = (0..12)
            .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value {n} of container {name} of pod {at}")}))
            .collect();
        json!({
            "name": format!("c{name}"), "image": format!("registry.example/team/app-{name}:v1.{at}"), "env": env,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "ports": [{"containerPort": 8080, "name": "http"}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        })
    };
    json!({
        "metadata": {
            "name": format!("pod-{}", at % 500),
            "labels": {"app.kubernetes.io/name": "app", "app.kubernetes.io/instance": format!("app-{at}"), "tier": "backend"},
            "annotations": {"example.com/checksum": format!("{at:064x}"), "example.com/note": "n".repeat(400)},
        },
        "spec": {"containers": (0..3).map(container).collect::<Vec<_>>(), "terminationGracePeriodSeconds": 30},
    })
}

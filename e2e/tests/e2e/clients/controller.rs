//! A controller on controller-runtime: parents and their children, while somebody changes both.

use std::collections::{BTreeMap, BTreeSet};

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::observer::{Endpoint, Observer, is_hit, is_list, is_watch};
use super::truth::END;
use super::writers::create_end;
use crate::pair::Pair;

const PARENTS: usize = 6;

/// Changes of every parent, one after the other, without waiting for the controller.
const ROUNDS: usize = 12;

#[tokio::test]
async fn a_controller_makes_what_is_asked_for_once() {
    let pair = Pair::shared().await;
    let (direct, proxied) = (pair.cluster.kubeconfig(), pair.proxy.kubeconfig());
    let direct = run(&pair, "direct", &direct).await;
    for when in ["cold", "warm"] {
        let proxied = run(&pair, when, &proxied).await;
        assert_eq!(result(&direct), result(&proxied), "{when}");
        let of = |is: fn(&Value) -> bool| {
            let found = proxied.iter().filter(|line| is(line));
            let found: Vec<&Value> = found.collect();
            let hits = found.iter().filter(|line| is_hit(line)).count();
            println!("{when}: {hits} of {} from memory", found.len());
            hits
        };
        let (lists, watches) = (of(is_children), of(is_watch));
        assert!(lists > 0, "no list came from memory");
        assert!(when == "cold" || watches > 0, "no watch came from memory");
    }
}

/// Whether the line tells of a list of one parent's children.
fn is_children(line: &Value) -> bool {
    is_list(line)
        && line["query"]
            .as_str()
            .unwrap_or_default()
            .contains("labelSelector")
}

/// What the program told at its end.
fn result(lines: &[Value]) -> &Value {
    lines.iter().find(|line| line["live"].is_array()).unwrap()
}

async fn run(pair: &Pair, when: &str, kubeconfig: &std::path::Path) -> Vec<Value> {
    let namespace = pair.cluster.namespace("clients").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let twins = watch_for_twins(&pair.direct, &path).await;
    let script = Script {
        client: &pair.direct,
        path: &path,
    };
    for n in 0..PARENTS {
        script.create(n, 0).await;
    }
    let endpoint = Endpoint {
        kubeconfig,
        context: pair.cluster.name(),
        namespace: &namespace,
    };
    let mut controller =
        Observer::start(format!("controller, {when}"), endpoint, &["control"], &[]).await;
    script.converged(&script.wanted(0)).await;
    for round in 1..=ROUNDS {
        script.round(round).await;
        if round % 4 == 0 {
            script.converged(&script.wanted(round)).await;
        }
    }
    // Some go and come back under their names, some stay away.
    for n in 0..PARENTS / 2 {
        script.delete(&format!("parent-{n}")).await;
    }
    script.create(0, ROUNDS + 1).await;
    let mut wanted = script.wanted(ROUNDS);
    wanted.retain(|state| (0..PARENTS / 2).all(|n| !state.contains(&format!("parent-{n} "))));
    wanted.extend(Script::family(0, ROUNDS + 1));
    script.converged(&wanted).await;
    controller.close_input();
    let lines = controller.end().await;

    let states: Vec<String> = wanted.into_iter().collect();
    for seen in ["live", "cached"] {
        assert_eq!(result(&lines)[seen], json!(states), "{seen}, {when}");
    }
    let faults: Vec<&Value> = lines
        .iter()
        .filter(|line| line["fault"].is_string())
        .collect();
    assert!(faults.is_empty(), "{when}: {faults:#?}");
    create_end(&pair.direct, &path).await;
    assert_eq!(twins.await.unwrap(), Vec::<String>::new(), "{when}");
    lines
}

/// What is done to parents and, behind the controller's back, to children.
struct Script<'a> {
    client: &'a Client,
    path: &'a str,
}

impl Script<'_> {
    fn children(n: usize, round: usize) -> usize {
        (n + 3 * round) % 5
    }

    async fn create(&self, n: usize, round: usize) {
        let parent = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("parent-{n}"), "labels": {"role": "parent"}},
            "data": Self::data(n, round),
        });
        let answer = self.client.create(self.path, &parent).await.unwrap();
        answer.ok().unwrap();
    }

    fn data(n: usize, round: usize) -> Value {
        json!({"children": Self::children(n, round).to_string(), "revision": format!("r{round}")})
    }

    async fn round(&self, round: usize) {
        for n in 0..PARENTS {
            let parent = format!("{}/parent-{n}", self.path);
            let patch = json!({"data": Self::data(n, round)});
            let answer = self.client.patch(&parent, &patch).await.unwrap();
            answer.ok().unwrap();
        }
        let children = self.list("labelSelector=place").await;
        if let Some(child) = children.first() {
            self.delete(child["metadata"]["name"].as_str().unwrap())
                .await;
        }
        if let Some(child) = children.last() {
            let path = format!(
                "{}/{}",
                self.path,
                child["metadata"]["name"].as_str().unwrap()
            );
            let patch = json!({"metadata": {"labels": {"revision": "tampered"}}});
            // The controller may have deleted it in the meantime.
            self.client.patch(&path, &patch).await.unwrap();
        }
    }

    async fn delete(&self, name: &str) {
        let path = format!("{}/{name}", self.path);
        let status = self.client.delete(&path).await.unwrap().status;
        assert!(status == 200 || status == 404, "{status}");
    }

    async fn list(&self, query: &str) -> Vec<Value> {
        let answer = self.client.get(&format!("{}?{query}", self.path)).await;
        let list = answer.unwrap().ok().unwrap().json().unwrap();
        list["items"].as_array().unwrap().clone()
    }

    fn family(n: usize, round: usize) -> impl Iterator<Item = String> {
        let children = (0..Self::children(n, round))
            .map(move |place| format!("child {place} of parent-{n} at r{round}"));
        children.chain([format!("parent parent-{n} at r{round}")])
    }

    fn wanted(&self, round: usize) -> BTreeSet<String> {
        (0..PARENTS).flat_map(|n| Self::family(n, round)).collect()
    }

    /// Waits until exactly this is there.
    async fn converged(&self, wanted: &BTreeSet<String>) {
        wait_for("the children that were asked for", PATIENCE, async || {
            let list = self.list("").await;
            let found: BTreeSet<String> = list.iter().map(state).collect();
            let is_so = found == *wanted && found.len() == list.len();
            is_so.then_some(()).ok_or_else(|| format!("{found:#?}"))
        })
        .await
        .unwrap();
    }
}

/// An object in the words of the program.
fn state(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let label = |name: &str| text(&metadata["labels"][name]);
    if label("role") == "parent" {
        let (name, revision) = (text(&metadata["name"]), text(&object["data"]["revision"]));
        return format!("parent {name} at {revision}");
    }
    format!(
        "child {} of {} at {}",
        label("place"),
        label("parent"),
        label("revision")
    )
}

/// Watches the apiserver itself until [`END`], and gives the children that were there twice at any moment.
async fn watch_for_twins(client: &Client, path: &str) -> JoinHandle<Vec<String>> {
    let list = client.get(path).await.unwrap().ok().unwrap();
    let list = list.json().unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("{path}?watch=true&resourceVersion={version}");
    let mut lines = client.lines(&query).await.unwrap();
    tokio::spawn(async move {
        let (mut children, mut twins) = (BTreeMap::new(), Vec::new());
        loop {
            let line = lines.next().await.unwrap().unwrap();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let metadata = &event["object"]["metadata"];
            if metadata["name"] == END {
                return twins;
            }
            let owner = metadata["ownerReferences"][0]["uid"].to_string();
            let child = (owner, metadata["labels"]["place"].to_string());
            let name = metadata["name"].as_str().unwrap().to_owned();
            if event["type"] == "DELETED" {
                children.remove(&name);
                continue;
            }
            if metadata["labels"]["place"].is_string()
                && children.values().any(|other| *other == child)
                && !children.contains_key(&name)
            {
                twins.push(format!("{name} is another child {child:?}"));
            }
            children.insert(name, child);
        }
    })
}

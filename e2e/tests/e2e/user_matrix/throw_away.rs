//! Writes that are made: by each user the same, in one namespace at the server and in another through the proxy.

use fleetcache_e2e::client::{Answer, Client};
use http::Method;
use serde_json::{Value, json};

use super::Outcome;
use super::ask::Row;
use super::kinds::{CONFIGMAPS, DEPLOYMENTS, SECRETS, WIDGETS, object};
use super::world::{Subject, WARM, World};
use crate::differential::normal::of_any_object;

/// Where each side writes.
const DIRECT: &str = "written-direct";
const PROXIED: &str = "written-proxied";

/// Has all users write, one after the other: some write to the same objects, and others read these.
pub(super) async fn writes(world: &World) -> Outcome {
    let mut outcome = Outcome::default();
    for subject in &world.subjects {
        for (row, direct, proxied) in write(subject).await {
            outcome.cells += 1;
            outcome.count("written", &proxied);
            let told = [(&direct, DIRECT), (&proxied, PROXIED)]
                .map(|(answer, namespace)| (answer.status, normal(answer, namespace)));
            if told[0] != told[1] {
                let difference =
                    format!("the server says {:?}\nand the proxy {:?}", told[0], told[1]);
                outcome
                    .failures
                    .push(format!("{}: {row}: {difference}", subject.name));
            }
        }
    }
    outcome
}

fn normal(answer: &Answer, namespace: &str) -> String {
    of_any_object(&answer.text(), namespace)
}

async fn write(subject: &Subject) -> Vec<(Row, Answer, Answer)> {
    let name = &subject.name;
    let mut answers = Vec::new();
    for (in_direct, in_proxied) in rows(name, DIRECT).into_iter().zip(rows(name, PROXIED)) {
        let ask = async |row: &Row, client: &Client, prefix: &str| row.ask(client, prefix).await;
        let prefix = format!("/clusters/{WARM}");
        let (direct, proxied) = tokio::join!(
            ask(&in_direct, &subject.direct, ""),
            ask(&in_proxied, &subject.proxied, &prefix),
        );
        answers.push((in_direct, direct, proxied));
    }
    answers
}

fn rows(user: &str, namespace: &str) -> Vec<Row> {
    let configmaps = CONFIGMAPS.within(namespace);
    let [first, second] = ["first", "second"].map(|which| format!("{user}-{which}"));
    let new = |name: &str| object(CONFIGMAPS, "written", name, user);
    let mut changed = new(&first);
    changed["data"] = json!({"changed": "yes"});
    let secret = object(SECRETS, namespace, user, user);
    let (one, own) = (
        format!("{configmaps}/{first}"),
        format!("{configmaps}?labelSelector=app%3D{user}"),
    );
    let [deployment, widget] =
        [DEPLOYMENTS, WIDGETS].map(|kind| format!("{}/one", kind.within(namespace)));
    let nothing = Value::Null;
    let steps = [
        (Method::POST, configmaps.clone(), new(&first)),
        (Method::POST, configmaps.clone(), new(&first)),
        (Method::GET, one.clone(), nothing.clone()),
        (Method::PUT, one.clone(), changed),
        (Method::PATCH, one.clone(), json!({"data": {"more": "m"}})),
        (Method::GET, one.clone(), nothing.clone()),
        (Method::POST, configmaps.clone(), new(&second)),
        (Method::GET, own.clone(), nothing.clone()),
        (
            Method::DELETE,
            format!("{configmaps}/{second}"),
            nothing.clone(),
        ),
        (
            Method::GET,
            format!("{configmaps}/{second}"),
            nothing.clone(),
        ),
        (Method::DELETE, own.clone(), nothing.clone()),
        (Method::GET, own, nothing.clone()),
        (Method::PATCH, one, json!({"data": {}})),
        (Method::POST, SECRETS.within(namespace), secret),
        (
            Method::DELETE,
            format!("{}/{user}", SECRETS.within(namespace)),
            nothing.clone(),
        ),
        (
            Method::PATCH,
            format!("{deployment}/scale"),
            json!({"spec": {"replicas": 2}}),
        ),
        (Method::GET, format!("{deployment}/scale"), nothing.clone()),
        (Method::GET, deployment, nothing.clone()),
        (
            Method::PATCH,
            format!("{widget}/status"),
            json!({"status": {"replicas": 7}}),
        ),
        (Method::GET, widget, nothing),
    ];
    steps
        .map(|(method, path, body)| Row::send(method, path, &body))
        .into()
}

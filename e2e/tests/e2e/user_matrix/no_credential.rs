//! Where nobody is let in without a credential: neither by the cluster nor by the proxy.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::User as Harness;
use fleetcache_e2e::kubeconfig::Credential;
use http::Method;
use serde_json::Value;

use super::Outcome;
use super::ask::{From, Row, ask};
use super::kinds::CONFIGMAPS;
use super::live::who_am_i;
use super::world::{Subject, WARM, World};
use crate::pair::connected;

/// Asks another apiserver of the cluster, and another proxy, neither of which knows `system:anonymous`.
pub(super) async fn refused(world: &World) -> Outcome {
    let strict = ["--anonymous-auth=false".to_owned()];
    let etcd = world.server.etcd_address();
    let server = world.server.replica_with(etcd, &strict).await.unwrap();
    let proxy = world.without_anonymous().await;
    let mut outcome = Outcome::default();
    for (name, credential, status) in [
        ("nothing", Credential::None, 401),
        ("unknown", Credential::Token("unknown".to_owned()), 401),
        ("reader", Credential::Token("reader-token".to_owned()), 200),
    ] {
        let mut direct = world.server.context(Harness::Admin).unwrap();
        direct.server = format!("https://{}", server.address());
        direct.credential = credential.clone();
        let mut proxied = proxy.root().unwrap();
        proxied.credential = credential;
        let clients = || [&direct, &proxied].map(|endpoint| Client::new(endpoint).unwrap());
        let [of_server, of_proxy] = clients();
        let subject = Subject {
            name: name.to_owned(),
            direct: of_server,
            proxied: of_proxy,
            http1: clients(),
        };
        if status == 200 {
            let mut warm = proxied.clone();
            warm.server = format!("{}/clusters/{WARM}", warm.server);
            connected(&Client::new(&warm).unwrap()).await;
        }
        for row in rows() {
            let direct = row.ask(&subject.direct, "").await;
            let asked = ask(&subject, &row, &format!("/clusters/{WARM}"), direct).await;
            outcome.cells += 1;
            outcome.add("strict", &asked);
            if (asked.direct.status == 401) != (status == 401) {
                let status = asked.direct.status;
                outcome.failures.push(format!("{name}: {row}: {status}"));
            }
        }
    }
    outcome
}

fn rows() -> Vec<Row> {
    let here = CONFIGMAPS.within("here");
    let mut rows: Vec<Row> = [
        here.as_str(),
        &format!("{here}/one"),
        &format!("{here}/none"),
        &CONFIGMAPS.all(),
        "/",
        "/api/v1",
        "/apis",
        "/healthz",
        "/version",
        "/openapi/v3",
        "/metrics",
        "/nothing",
    ]
    .map(|path| Row::get(path, From::Any))
    .into();
    rows.push(Row::watch(&here, From::Any));
    rows.push(Row::get(here.as_str(), From::Any).accept("application/vnd.kubernetes.protobuf"));
    rows.push(
        Row::get(here.as_str(), From::Any).accept("application/json;as=Table;v=v1;g=meta.k8s.io"),
    );
    rows.push(Row::send(
        Method::DELETE,
        format!("{here}/none"),
        &Value::Null,
    ));
    rows.push(Row {
        method: Method::HEAD,
        ..Row::get(here, From::Any)
    });
    rows.push(who_am_i());
    rows
}

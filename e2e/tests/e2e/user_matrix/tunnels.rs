//! Tunnels into pods: who may have one, and who is told why not.

use fleetcache_e2e::client::Client;
use futures_util::future::join_all;
use http::Method;
use http_body_util::BodyExt as _;

use super::Outcome;
use super::kinds::PODS;
use super::world::{Subject, WARM, World};

const WEBSOCKET: [(&str, &str); 6] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ("accept", "application/json"),
];

/// Asks for a tunnel on both sides; what is in it is not the matrix's.
pub(super) async fn open_all(world: &World) -> Outcome {
    let mut outcome = Outcome::default();
    let [here, there] = ["here", "there"].map(|namespace| PODS.within(namespace));
    for path in [
        format!("{here}/one/exec?command=true&stdout=true"),
        format!("{here}/none/exec?command=true&stdout=true"),
        format!("{here}/one/attach?stdout=true"),
        format!("{there}/one/exec?command=true&stdout=true"),
    ] {
        let asked = join_all(world.subjects.iter().map(|subject| differs(subject, &path)));
        for differs in asked.await {
            outcome.cells += 1;
            outcome.failures.extend(differs);
        }
    }
    outcome
}

async fn differs(subject: &Subject, path: &str) -> Option<String> {
    let [direct, proxied] = &subject.http1;
    let direct = open(direct, path).await;
    let proxied = open(proxied, &format!("/clusters/{WARM}{path}")).await;
    let name = &subject.name;
    (direct != proxied).then(|| {
        format!("{name}: tunnel {path}: the server says {direct:?}, and the proxy {proxied:?}")
    })
}

/// The status, and the body of what is no tunnel.
async fn open(client: &Client, path: &str) -> (u16, String) {
    let response = client.open(Method::GET, path, &WEBSOCKET, "");
    let response = response.await.unwrap();
    let status = response.status().as_u16();
    if status == 101 {
        return (status, String::new());
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

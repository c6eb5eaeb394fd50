//! Who is no reader of the fleet is refused in the words of a real server, which refuses before it knows whether there is such
//! a kind.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{User, control_plane};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use http::Method;

use super::{PATH, serve};
use crate::pair::{Comparable, compare};

#[tokio::test]
async fn who_may_not_is_refused_as_by_a_server() {
    let cluster = control_plane().await;
    let files = tempfile::tempdir().unwrap();
    let tokens = files.path().join("tokens.csv");
    std::fs::write(&tokens, "alice-token,alice,2,developers\nbob-token,bob,3\n").unwrap();
    let config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
         authentication: {{ tokenFile: {}, anonymous: true }}\nauthorization: {{ fleetReaders: {{ users: [bob] }} }}\n",
        tokens.display()
    );
    let admin = cluster.context(User::Admin).unwrap();
    let proxy = serve(&[("a", &admin)], Some(&config)).await;
    let alice = Credential::Token("alice-token".to_owned());
    let requests = [
        (Method::GET, PATH.to_owned()),
        (Method::GET, format!("{PATH}?watch=1")),
        (Method::GET, format!("{PATH}/a")),
        (Method::GET, format!("{PATH}/none")),
        (Method::GET, format!("{PATH}/a?watch=1")),
        (
            Method::GET,
            format!("{PATH}?fieldSelector=metadata.name%3Da"),
        ),
        (Method::GET, format!("{PATH}/a/status")),
        (Method::HEAD, PATH.to_owned()),
        (Method::POST, PATH.to_owned()),
        (Method::PUT, format!("{PATH}/a")),
        (Method::PATCH, format!("{PATH}/a")),
        (Method::DELETE, format!("{PATH}/a")),
        (Method::DELETE, PATH.to_owned()),
        (Method::GET, "/apis".to_owned()),
        (Method::GET, "/api".to_owned()),
        (Method::GET, "/apis/fleetcache.dev/v1alpha1".to_owned()),
        (Method::GET, "/openapi/v3".to_owned()),
        (Method::POST, "/apis".to_owned()),
        (Method::POST, "/version".to_owned()),
    ];
    let mut different = Vec::new();
    let (mut refused, mut allowed) = (0, 0);
    for credential in [alice, Credential::None] {
        let of = |endpoint: Context| {
            Client::new(&Context {
                credential: credential.clone(),
                ..endpoint
            })
            .unwrap()
        };
        let (direct, proxied) = (of(admin.clone()), of(proxy.root().unwrap()));
        for (method, path) in &requests {
            // A method that a document does not have is a 405 here to whoever may read it.
            if credential != Credential::None && !path.starts_with(PATH) && method != Method::GET {
                continue;
            }
            let ask = async |client: &Client| {
                let accept = [("accept", "application/json")];
                let answer = client.send(method.clone(), path, &accept, "").await;
                answer.unwrap()
            };
            let (direct, proxied) = (ask(&direct).await, ask(&proxied).await);
            // What each says of itself to whom it may differs, and the server has no such kind.
            if direct.status != 403 && proxied.status != 403 {
                allowed += 1;
                continue;
            }
            refused += 1;
            let same = compare(&Comparable::from(&direct), &Comparable::from(&proxied));
            if let Err(difference) = same {
                different.push(format!("{credential:?} {method} {path}: {difference}"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(refused > 25 && allowed > 2, "{refused} {allowed}");
}

#[tokio::test]
async fn who_asks_is_told_as_by_a_server() {
    const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let cluster = control_plane().await;
    let files = tempfile::tempdir().unwrap();
    let tokens = files.path().join("tokens.csv");
    std::fs::write(&tokens, "alice-token,alice,2,developers\n").unwrap();
    let config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nauthentication: {{ tokenFile: {} }}\n",
        tokens.display()
    );
    let admin = cluster.context(User::Admin).unwrap();
    let proxy = serve(&[("a", &admin)], Some(&config)).await;
    let told = async |endpoint: Context| {
        let credential = Credential::Token("alice-token".to_owned());
        let client = Client::new(&Context {
            credential,
            ..endpoint
        });
        let review = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
        let headers = [
            ("accept", "application/json"),
            ("content-type", "application/json"),
        ];
        let answer = client
            .unwrap()
            .send(Method::POST, WHO, &headers, review)
            .await;
        let answer = answer.unwrap();
        let text = answer.text();
        let text = match answer.json().unwrap()["metadata"]["creationTimestamp"].as_str() {
            Some(time) => text.replace(time, "now"),
            None => text,
        };
        let header = |name: &str| answer.headers.get(name).cloned();
        let headers = ["content-type", "cache-control", "content-length"].map(header);
        (answer.status, headers, text)
    };
    let direct = told(admin).await;
    assert_eq!(direct.0, 201);
    assert_eq!(told(proxy.root().unwrap()).await, direct);
}

//! A token goes out of the file, and the file out of the configuration.

use fleetcache_e2e::control_plane::User;

use super::*;

const CONNECTIONS: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections?watch=1";

#[tokio::test(flavor = "multi_thread")]
async fn who_is_gone_from_the_file_or_whose_file_is_gone_is_nobody() {
    let cluster = control_plane().await;
    let carol = cluster.context(User::Carol).unwrap();
    let clients = "tls: { clientCAFile: clients.crt }\n";
    let both = format!("{clients}authentication: {{ tokenFile: tokens.csv }}\n{LONG}");
    let content = [
        ("clients.crt", &*carol.ca_pem),
        ("tokens.csv", "a,revoked-alice,1\nb,revoked-bob,2\n"),
    ];
    let setup = Setup::start(&both, &content).await;
    for name in ["revoked-alice", "revoked-bob", "carol"] {
        setup.bind_user(name).await;
    }
    let (alice, bob) = (
        setup.reader(token("a")).await,
        setup.reader(token("b")).await,
    );
    let bystander = setup.bystander(carol.credential).await;
    let mut root = setup.proxy.root().unwrap();
    root.credential = token("a");
    let fleet = Client::new(&root)
        .unwrap()
        .lines(CONNECTIONS)
        .await
        .unwrap();
    let (mut watches, live) = (alice.watch().await, alice.live_watch().await);
    watches.push(fleet);
    let tunnel = alice.websocket_watch().await;
    let bobs = bob.watch().await;

    setup.write("tokens.csv", "b,revoked-bob,2\n");
    alice.is_refused(401).await;
    end(watches).await;
    end_of(live).await;
    end_of_tunnel(tunnel).await;

    setup.configure(&format!("{clients}{LONG}"));
    bob.is_refused(401).await;
    end(bobs).await;
    bystander.missed_nothing().await;
}

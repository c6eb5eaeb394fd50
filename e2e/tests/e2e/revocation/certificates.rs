//! An authority goes out of the file.

use super::*;
use crate::auth::files::{authority, client};

#[tokio::test(flavor = "multi_thread")]
async fn whose_authority_is_gone_is_nobody() {
    let (one, other) = (authority("one"), authority("other"));
    let rest = format!("tls: {{ clientCAFile: clients.crt }}\n{LONG}");
    let bundle = one.pem() + &other.pem();
    let setup = Setup::start(&rest, &[("clients.crt", &bundle)]).await;
    setup.bind_user("carol").await;
    let carol = setup.reader(client(&one)).await;
    // The same user by another authority.
    let bystander = setup.bystander(client(&other)).await;
    let (watches, live) = (carol.watch().await, carol.live_watch().await);
    setup.write("clients.crt", &other.pem());
    carol.is_refused(401).await;
    end(watches).await;
    end_of(live).await;
    bystander.missed_nothing().await;
}

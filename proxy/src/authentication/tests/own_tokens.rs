//! Tokens that a cluster has issued itself, where it says so and where it cannot.

use super::*;

fn is_unavailable(said: &Own) -> bool {
    let unavailable = |it| matches!(it, &AuthenticationError::Unavailable(_));
    matches!(said, Own::Judged(Err(it)) if unavailable(it))
}

fn known(said: Own) -> Authenticated {
    match said {
        Own::Judged(Ok(known)) => known,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_clusters_own_tokens_are_known_where_it_is_asked_for() {
    let (clusters, own) = (Clusters::start(), OwnTokens::default());
    let token = jwt(&json!({"iss": ISSUER}));
    let cluster = Cluster::that_knows(&[&token]);
    let a = clusters.get("a");
    for _ in 0..3 {
        let known = known(own.of_issuer(&token, ISSUER, &a, &cluster).await);
        assert_eq!(known.method, Method::TokenReview);
        // The system's names are the cluster's to give.
        assert_eq!(known.user.name, SERVICE_ACCOUNT);
        assert_eq!(known.user.named_by.as_deref(), Some("a"));
        assert_eq!(known.user.groups, ["system:serviceaccounts", AUTHENTICATED]);
    }
    assert_eq!((cluster.documents(), cluster.reviews()), (1, 1));
    // Another cluster that calls itself the same asks itself.
    let (b, other) = (clusters.get("b"), Cluster::that_knows(&[]));
    assert!(is_refused(&own.of_issuer(&token, ISSUER, &b, &other).await));
    assert_eq!((other.documents(), other.reviews()), (1, 1));
    // It cannot say.
    other.answers_with(500);
    advance(Duration::from_secs(10)).await;
    let said = own.of_issuer(&token, ISSUER, &b, &other).await;
    assert!(is_unavailable(&said), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_issuer_is_not_shown_to_the_cluster() {
    let (clusters, own) = (Clusters::start(), OwnTokens::default());
    let (a, cluster) = (clusters.get("a"), Cluster::that_knows(&["t"]));
    for _ in 0..3 {
        let said = own
            .of_issuer("t", "https://login.example.com", &a, &cluster)
            .await;
        assert!(matches!(said, Own::No), "{said:?}");
    }
    assert_eq!((cluster.documents(), cluster.reviews()), (1, 0));
    // It may call itself something else by now.
    *cluster.issuer.lock() = "https://login.example.com";
    advance(Duration::from_secs(60)).await;
    let said = own
        .of_issuer("t", "https://login.example.com", &a, &cluster)
        .await;
    known(said);
    assert_eq!((cluster.documents(), cluster.reviews()), (2, 1));
    // Nor where it does not say who it is.
    *cluster.issuer.lock() = "";
    for issuer in ["", ISSUER, ISSUER] {
        let rebuilt = Cluster::of_epoch(2, &["t"]);
        *rebuilt.issuer.lock() = "";
        let said = own.of_issuer("t", issuer, &a, &rebuilt).await;
        assert!(matches!(said, Own::NotKnown(_)), "{said:?}");
        assert_eq!(rebuilt.reviews(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_cluster_that_is_away_cannot_be_judged() {
    let (clusters, own) = (Clusters::start(), OwnTokens::default());
    let a = clusters.get("a");
    let token = jwt(&json!({"iss": ISSUER}));
    // It has never been there: nobody learns whether there is such a cluster.
    let said = own.authenticate(&bearer(&token), &a).await;
    assert!(matches!(said, Own::NotKnown(_)), "{said:?}");
    let cluster = Cluster::of_epoch(a.status().epoch, &[&token]);
    known(own.of_issuer(&token, ISSUER, &a, &cluster).await);
    let said = own.authenticate(&bearer(&token), &a).await;
    assert!(is_unavailable(&said), "{said:?}");
    let other = jwt(&json!({"iss": "https://login.example.com"}));
    for token in [&*other, "opaque"] {
        let said = own.authenticate(&bearer(token), &a).await;
        assert!(matches!(said, Own::No), "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_cluster_may_know_a_token_is_told_to_the_log_alone() {
    let clusters = Clusters::start();
    let methods = Methods {
        generated_token: Some("mine".to_owned()),
        ..Methods::default()
    };
    let own_tokens = Some(AskedClusters::default().own_tokens());
    let authentication = Authentication::new(Authenticator::new(methods), own_tokens);
    let a = clusters.get("a");
    let token = jwt(&json!({"iss": ISSUER}));
    let (own, opaque) = (bearer(&token), bearer("opaque"));
    let why = async |headers: &HeaderMap, target| {
        let credentials = Credentials {
            headers,
            certificates: None,
        };
        match authentication.authenticate(credentials, target).await {
            Err(AuthenticationError::Unauthenticated(Some(refusal))) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let nobody = Refusal {
        method: None,
        fault: FaultSort::Unknown.because("nobody knows the token"),
    };
    assert_eq!(why(&own, None).await, nobody, "of no cluster");
    assert_eq!(why(&opaque, Some(&a)).await, nobody);
    let expected = "nobody knows the token, and whether it is cluster \"a\"'s own is not known, since that has not said yet who \
                    its issuer is: it is not connected";
    let fault = FaultSort::Unasked.because(expected);
    let method = None;
    assert_eq!(why(&own, Some(&a)).await, Refusal { method, fault });
    // Whoever has issued it has said more.
    let refusal = Refusal {
        method: Some(Method::Jwt),
        fault: FaultSort::Time.because("it has expired"),
    };
    assert_eq!(or_own(refusal.clone(), "x"), refusal);
}

//! Why a credential is nobody's.

use super::*;

/// The way and the reason of a refusal, and its sort.
async fn why(
    authenticator: &Authenticator,
    headers: &[(&str, &str)],
    certificates: Option<&[CertificateDer<'static>]>,
) -> Option<(Option<Method>, Fault)> {
    let mut lines = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        lines.append(name, HeaderValue::from_str(value).unwrap());
    }
    let credentials = Credentials {
        headers: &lines,
        certificates,
    };
    match authenticator.authenticate(credentials).await {
        Err(AuthenticationError::Unauthenticated(why)) => why.map(|it| (it.method, it.fault)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_refusal_says_what_is_wrong_and_not_with_which_token() {
    use FaultSort::{Form, Judged, Name, Signature, Unknown};
    let ca = Ca::new();
    let authenticator = Authenticator::new(Methods {
        certificates: ca.trusted(),
        token_file: token_file("s3cret,system:admin,1\n"),
        token_review: Some(Arc::new(Cluster(user("alice", &[])))),
        ..Methods::default()
    });
    let stranger = Ca::new().certificate("carol", "g");
    let stranger = Some(stranger.as_slice());
    let bearer = |token: &'static str| [(BEARER, token)];
    let check = async |headers: &[(&str, &str)], sent, method, sort: FaultSort, reason: &str| {
        let got = why(&authenticator, headers, sent).await;
        assert_eq!(got, Some((method, sort.because(reason))), "{headers:?}");
    };
    assert_eq!(why(&authenticator, &[], None).await, None);
    // The authority has the name of ours.
    let authority = "invalid peer certificate: BadSignature";
    check(
        &[],
        stranger,
        Some(Method::Certificate),
        Signature,
        authority,
    )
    .await;
    let nobody = "nobody knows the token";
    check(&bearer("Bearer other"), None, None, Unknown, nobody).await;
    // The credential that counts is the one that was looked at last.
    check(&bearer("Bearer other"), stranger, None, Unknown, nobody).await;
    check(
        &bearer("Bearer wrong"),
        None,
        Some(Method::TokenReview),
        Judged,
        "wrong",
    )
    .await;
    let system = "user name \"system:admin\" is the system's own";
    check(
        &bearer("Bearer s3cret"),
        None,
        Some(Method::TokenFile),
        Name,
        system,
    )
    .await;
    let two = [(BEARER, "Bearer a"), (BEARER, "Bearer b")];
    check(&two, None, None, Form, "more than one Authorization header").await;
}

#[tokio::test]
async fn a_system_name_of_one_credential_does_not_stop_another() {
    let ca = Ca::new();
    let authenticator = Authenticator::new(Methods {
        certificates: ca.trusted(),
        token_file: token_file("a,alice,1\n"),
        ..Methods::default()
    });
    let node = ca.certificate("system:node:n", "system:nodes");
    assert_eq!(
        who(&authenticator, &[], Some(&node)).await,
        "Unauthenticated"
    );
    assert_eq!(
        who(&authenticator, &[(BEARER, "Bearer a")], Some(&node)).await,
        "alice[system:authenticated] tokenFile"
    );
}

use std::collections::BTreeMap;

use futures_util::future::{self, BoxFuture};
use http::{HeaderName, HeaderValue};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

use super::*;
use crate::jwt::tests::with_a_token;

fn token_file(content: &str) -> Option<TokenFile> {
    Some(TokenFile::new(content.as_bytes()).unwrap())
}

/// A cluster that knows the token `known`, whose user it is told.
struct Cluster(UserInfo);

/// A cluster that cannot be asked.
struct Down;

impl ReviewTokens for Cluster {
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<TokenUser>, TokenError>> {
        let user = (token == "known").then(|| TokenUser {
            user: self.0.clone(),
            expires: None,
            known_until: None,
        });
        Box::pin(future::ready(match token {
            "wrong" => Err(TokenError::Invalid(FaultSort::Judged.because("wrong"))),
            _ => Ok(user),
        }))
    }
}

impl ReviewTokens for Down {
    fn review<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<TokenUser>, TokenError>> {
        Box::pin(future::ready(Err(TokenError::Unavailable(Unavailable {
            judge: "a judge".to_owned(),
            why: "down".to_owned(),
        }))))
    }
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..UserInfo::default()
    }
}

/// A CA, and the certificates of users of it.
struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn trusted(&self) -> Option<ClientCertificates> {
        Some(ClientCertificates::new(self.0.pem().as_bytes()).unwrap())
    }

    fn certificate(&self, name: &str, group: &str) -> Vec<CertificateDer<'static>> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        let key = KeyPair::generate().unwrap();
        vec![params.signed_by(&key, &self.0).unwrap().der().clone()]
    }
}

/// Who a request is from: `user[groups] method`, or the error.
async fn who(
    authenticator: &Authenticator,
    headers: &[(&str, &str)],
    certificates: Option<&[CertificateDer<'static>]>,
) -> String {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        })
        .collect();
    let credentials = Credentials {
        headers: &headers,
        certificates,
    };
    match authenticator.authenticate(credentials).await {
        Ok(found) => {
            let (user, method) = (found.user, found.method.as_str());
            format!("{}[{}] {method}", user.name, user.groups.join(" "))
        }
        Err(AuthenticationError::Unauthenticated(_)) => "Unauthenticated".to_owned(),
        Err(AuthenticationError::Unavailable(why)) => format!("Unavailable: {why}"),
    }
}

mod refusals;

const BEARER: &str = "authorization";

#[tokio::test]
async fn only_the_generated_token_is_admin() {
    let authenticator = Authenticator::new(Methods {
        generated_token: Some("s3cret".to_owned()),
        ..Methods::default()
    });
    for (headers, known) in [
        (&[][..], false),
        (&[(BEARER, "Bearer s3cret")], true),
        (&[(BEARER, "bearer s3cret")], true),
        (&[(BEARER, "BEARER s3cret ")], true),
        (&[(BEARER, "Bearer s3cret2")], false),
        (&[(BEARER, "Bearer s3cre")], false),
        (&[(BEARER, "Bearer S3cret")], false),
        (&[(BEARER, "Bearer")], false),
        (&[(BEARER, "Bearer  s3cret")], false),
        (&[(BEARER, "Basic s3cret")], false),
        (&[(BEARER, "s3cret")], false),
    ] {
        let expected = match known {
            true => "fleetcache:admin[fleetcache:admins system:authenticated] generated",
            false => "Unauthenticated",
        };
        assert_eq!(
            who(&authenticator, headers, None).await,
            expected,
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn two_authorization_headers_are_nobody() {
    let ca = Ca::new();
    let authenticator = Authenticator::new(Methods {
        certificates: ca.trusted(),
        token_file: token_file("a,alice,1\nb,bob,2\n"),
        anonymous: true,
        ..Methods::default()
    });
    let carol = ca.certificate("carol", "g");
    for (one, other) in [
        ("Bearer a", "Bearer b"),
        ("Bearer a", "Bearer a"),
        ("", "Bearer a"),
    ] {
        let headers = [(BEARER, one), (BEARER, other)];
        let got = who(&authenticator, &headers, Some(&carol)).await;
        assert_eq!(got, "Unauthenticated");
    }
}

/// `base64url.bearer.…` of a token that is a letter, beside another subprotocol.
fn websocket(protocols: &str) -> [(&'static str, &str); 3] {
    [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", protocols),
    ]
}

#[tokio::test]
async fn methods_are_tried_in_order_until_one_knows() {
    let ca = Ca::new();
    let authenticator = Authenticator::new(Methods {
        certificates: ca.trusted(),
        generated_token: Some("generated".to_owned()),
        token_file: token_file("a,alice,1,dev\nknown-too,file,1\ngenerated,file,1\n"),
        token_review: Some(Arc::new(Cluster(user("review", &["r"])))),
        ..Methods::default()
    });
    let carol = ca.certificate("carol", "dev");
    let (stranger, nameless) = (
        Ca::new().certificate("mallory", "dev"),
        ca.certificate("", "dev"),
    );
    let carol_is = "carol[dev system:authenticated] certificate";
    let alice_is = "alice[dev system:authenticated] tokenFile";
    let review_is = "review[r system:authenticated] tokenReview";
    let generated_is = "fleetcache:admin[fleetcache:admins system:authenticated] generated";
    let nobody_is = "Unauthenticated";
    // `a` and `b` as subprotocols.
    let (protocol_a, protocol_b) = (
        "base64url.bearer.authorization.k8s.io.YQ, x",
        "base64url.bearer.authorization.k8s.io.Yg, x",
    );
    for (certificate, token, protocol, expected) in [
        (Some(&carol), None, None, carol_is),
        (Some(&carol), Some("a"), None, carol_is),
        (Some(&carol), Some("wrong"), None, carol_is),
        (Some(&stranger), None, None, nobody_is),
        (Some(&stranger), Some("a"), None, alice_is),
        (Some(&nameless), None, None, nobody_is),
        (Some(&nameless), Some("known"), None, review_is),
        (Some(&Vec::new()), Some("a"), None, alice_is),
        (None, Some("generated"), None, generated_is),
        (None, Some("a"), None, alice_is),
        (None, Some("known"), None, review_is),
        (None, Some("unknown"), None, nobody_is),
        (None, Some("wrong"), None, nobody_is),
        (None, None, Some(protocol_a), alice_is),
        (None, None, Some(protocol_b), nobody_is),
        (None, Some("known"), Some(protocol_a), review_is),
        (None, Some("wrong"), Some(protocol_a), alice_is),
        (None, None, None, nobody_is),
    ] {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers: Vec<_> = protocol.map(websocket).into_iter().flatten().collect();
        headers.extend(bearer.as_deref().map(|bearer| (BEARER, bearer)));
        let got = who(&authenticator, &headers, certificate.map(Vec::as_slice)).await;
        assert_eq!(got, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn a_jwt_comes_after_the_token_file_and_before_a_review() {
    let (jwt, token) = with_a_token();
    let (_, foreign) = with_a_token();
    let jwt = Some(Arc::new(jwt));
    let bearer = format!("Bearer {token}");
    let headers = [(BEARER, bearer.as_str())];
    let alice = "alice[system:authenticated] jwt";
    let authenticator = Authenticator::new(Methods {
        token_file: token_file("a,alice,1\n"),
        jwt: jwt.clone(),
        token_review: Some(Arc::new(Down)),
        ..Methods::default()
    });
    assert_eq!(who(&authenticator, &headers, None).await, alice);
    let listed = Authenticator::new(Methods {
        token_file: token_file(&format!("{token},listed,1\n")),
        jwt: jwt.clone(),
        ..Methods::default()
    });
    let listed_is = "listed[system:authenticated] tokenFile";
    assert_eq!(who(&listed, &headers, None).await, listed_is);
    // A system's name in the file does not stop it.
    let listed = Authenticator::new(Methods {
        token_file: token_file(&format!("{token},system:admin,1\n")),
        jwt,
        ..Methods::default()
    });
    assert_eq!(who(&listed, &headers, None).await, alice);
    // By a key that the issuer, which cannot be asked, may have by now.
    let foreign = format!("Bearer {foreign}");
    let headers = [(BEARER, foreign.as_str())];
    let issuer_is = "Unavailable: issuer \"https://127.0.0.1:1\": ";
    let got = who(&listed, &headers, None).await;
    assert!(got.starts_with(issuer_is), "{got}");
    let unavailable = "Unavailable: a judge: down";
    assert_eq!(who(&authenticator, &headers, None).await, unavailable);
    // None of any issuer.
    let headers = [(BEARER, "Bearer opaque")];
    assert_eq!(who(&authenticator, &headers, None).await, unavailable);
}

#[tokio::test]
async fn what_cannot_be_judged_is_unavailable_only_if_nobody_knows() {
    let ca = Ca::new();
    let authenticator = Authenticator::new(Methods {
        certificates: ca.trusted(),
        token_file: token_file("a,alice,1\n"),
        token_review: Some(Arc::new(Down)),
        anonymous: true,
        ..Methods::default()
    });
    let (carol, stranger) = (
        ca.certificate("carol", "g"),
        Ca::new().certificate("carol", "g"),
    );
    let unknown = [(BEARER, "Bearer unknown")];
    let unavailable = "Unavailable: a judge: down";
    assert_eq!(
        who(&authenticator, &unknown, Some(&carol)).await,
        "carol[g system:authenticated] certificate"
    );
    assert_eq!(who(&authenticator, &unknown, None).await, unavailable);
    assert_eq!(
        who(&authenticator, &unknown, Some(&stranger)).await,
        unavailable
    );
    let mut both = websocket("base64url.bearer.authorization.k8s.io.YQ, x").to_vec();
    both.extend(unknown);
    assert_eq!(
        who(&authenticator, &both, None).await,
        "alice[system:authenticated] tokenFile"
    );
    // Nobody is asked about what is no token.
    assert_eq!(
        who(&authenticator, &[], None).await,
        "system:anonymous[system:unauthenticated] anonymous"
    );
}

#[tokio::test]
async fn only_a_request_without_a_credential_is_anonymous() {
    let ca = Ca::new();
    let authenticator = Authenticator::new(Methods {
        certificates: ca.trusted(),
        token_file: token_file("a,alice,1\nn,system:node:n,2\n"),
        anonymous: true,
        ..Methods::default()
    });
    let (stranger, nameless) = (Ca::new().certificate("carol", "g"), ca.certificate("", "g"));
    let protocol = websocket("base64url.bearer.authorization.k8s.io.Yg, x");
    let alone = websocket("base64url.bearer.authorization.k8s.io.YQ");
    for (headers, certificates, anonymous) in [
        (&[][..], None, true),
        (&[(BEARER, "")], None, true),
        (&[(BEARER, "Bearer")], None, true),
        (&[(BEARER, "Basic a")], None, true),
        (&[], Some(&nameless), true),
        (&[], Some(&stranger), false),
        (&[(BEARER, "Bearer b")], None, false),
        (&[(BEARER, "Bearer b")], Some(&nameless), false),
        (&[(BEARER, "Bearer n")], None, false),
        (&protocol, None, false),
        (&alone, None, false),
    ] {
        let expected = match anonymous {
            true => "system:anonymous[system:unauthenticated] anonymous",
            false => "Unauthenticated",
        };
        let got = who(&authenticator, headers, certificates.map(Vec::as_slice)).await;
        assert_eq!(got, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn names_of_the_system_come_from_outside_only_where_allowed() {
    let check = async |allowed: &[&str], found: UserInfo, expected: &str| {
        let authenticator = Authenticator::new(Methods {
            token_review: Some(Arc::new(Cluster(found))),
            allow_system_names: allowed.iter().map(|&name| name.to_owned()).collect(),
            ..Methods::default()
        });
        let got = who(&authenticator, &[(BEARER, "Bearer known")], None).await;
        assert_eq!(got, expected, "{allowed:?}");
    };
    let outside = || {
        user(
            "u",
            &[
                "system:masters",
                "g,system:masters",
                "system:authenticated",
                "h",
            ],
        )
    };
    check(
        &[],
        outside(),
        "u[g,system:masters h system:authenticated] tokenReview",
    )
    .await;
    check(
        &["system:masters"],
        outside(),
        "u[system:masters g,system:masters h system:authenticated] tokenReview",
    )
    .await;
    check(
        &["system:master", "system:"],
        outside(),
        "u[g,system:masters h system:authenticated] tokenReview",
    )
    .await;
    // Never both, and never from outside.
    check(
        &["system:unauthenticated"],
        user("u", &["system:unauthenticated"]),
        "u[system:authenticated] tokenReview",
    )
    .await;
    let node = || user("system:node:n", &["system:nodes"]);
    check(&[], node(), "Unauthenticated").await;
    check(&["system:nodes"], node(), "Unauthenticated").await;
    check(
        &["system:node:n"],
        node(),
        "system:node:n[system:authenticated] tokenReview",
    )
    .await;
    check(
        &["system:node:n", "system:nodes"],
        node(),
        "system:node:n[system:nodes system:authenticated] tokenReview",
    )
    .await;
    check(&[], user("system:anonymous", &[]), "Unauthenticated").await;
    check(
        &["system:anonymous"],
        user("system:anonymous", &["system:authenticated"]),
        "system:anonymous[system:unauthenticated] tokenReview",
    )
    .await;
    // What would arrive as a name of the system.
    check(&[], user(" system:admin", &[]), "Unauthenticated").await;
    check(&[], user("u", &["g", " system:masters"]), "Unauthenticated").await;
    check(
        &[],
        user("u", &["g\r\nimpersonate-group: h"]),
        "Unauthenticated",
    )
    .await;
    check(&[], user("", &["g"]), "Unauthenticated").await;
    let uid = UserInfo {
        uid: "\u{1}".to_owned(),
        ..user("u", &[])
    };
    check(&[], uid, "Unauthenticated").await;
    let extra = UserInfo {
        extra: BTreeMap::from([("k".to_owned(), vec!["\n".to_owned()])]),
        ..user("u", &[])
    };
    check(&[], extra, "Unauthenticated").await;
}

#[test]
fn nothing_shown_is_a_secret() {
    let authenticator = Authenticator::new(Methods {
        generated_token: Some("s3cret".to_owned()),
        ..Methods::default()
    });
    assert_eq!(format!("{authenticator:?}"), "Authenticator { .. }");
    // No token is kept either.
    assert_eq!(authenticator.methods.generated_token, None);
}

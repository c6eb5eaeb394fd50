//! Certificates in the handshake.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::{Issuer, Request, Sent, Servers, authority, authority_params};

fn between(ca: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> Issuer {
    let mut params = authority_params("between");
    change(&mut params);
    Issuer::signed_by(params, KeyPair::generate().unwrap(), ca).unwrap()
}

fn client(ca: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> Sent {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "carol");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, ca).unwrap();
    (vec![certificate.der().clone()], key)
}

fn named(ca: &Issuer, change: impl FnOnce(&mut DistinguishedName)) -> Sent {
    client(ca, |params| {
        params.distinguished_name = DistinguishedName::new();
        change(&mut params.distinguished_name);
    })
}

fn with_chain((mut sent, key): Sent, issuer: &Issuer) -> Sent {
    sent.push(issuer.der().clone());
    (sent, key)
}

/// What is shown in the handshake, and whether the server is expected to know the user: so that a table in which nobody
/// is known cannot pass.
fn certificates(ca: &Issuer, expired_ca: &Issuer) -> Vec<(&'static str, Sent, bool)> {
    use ExtendedKeyUsagePurpose::{CodeSigning, ServerAuth};
    let common_name = || DnType::CustomDnType(vec![2, 5, 4, 3]);
    let organization = || DnType::CustomDnType(vec![2, 5, 4, 10]);
    let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    let usages = |usages: &[ExtendedKeyUsagePurpose]| {
        client(ca, |params| params.extended_key_usages = usages.to_vec())
    };
    let good = between(ca, |_| {});
    let no_authority = between(ca, |params| params.is_ca = IsCa::ExplicitNoCa);
    let no_signer = between(ca, |params| {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    });
    let of_servers = between(ca, |params| params.extended_key_usages = vec![ServerAuth]);
    vec![
        ("plain", client(ca, |_| {}), true),
        (
            "groups",
            named(ca, |name| {
                name.push(DnType::OrganizationName, "a,b");
                name.push(DnType::CommonName, "jörg");
                name.push(organization(), "東京");
            }),
            true,
        ),
        (
            "an empty group",
            named(ca, |name| {
                name.push(DnType::OrganizationName, "");
                name.push(DnType::CommonName, "carol");
            }),
            true,
        ),
        (
            "a uid, and two names",
            named(ca, |name| {
                name.push(DnType::CommonName, "first");
                name.push(common_name(), "last");
                name.push(uid(), "7");
            }),
            true,
        ),
        (
            "an empty uid",
            named(ca, |name| {
                name.push(DnType::CommonName, "carol");
                name.push(uid(), "");
            }),
            false,
        ),
        (
            "no name",
            named(ca, |name| name.push(DnType::OrganizationName, "a")),
            false,
        ),
        (
            "an empty name",
            named(ca, |name| name.push(DnType::CommonName, "")),
            false,
        ),
        ("nothing", named(ca, |_| {}), false),
        ("no usage", usages(&[]), true),
        ("for servers", usages(&[ServerAuth]), false),
        (
            "for servers and clients",
            usages(&[ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]),
            true,
        ),
        ("for code", usages(&[CodeSigning]), false),
        (
            "expired",
            client(ca, |params| params.not_after = date_time_ymd(2020, 1, 1)),
            false,
        ),
        (
            "not yet valid",
            client(ca, |params| params.not_before = date_time_ymd(3000, 1, 1)),
            false,
        ),
        (
            "of another authority",
            client(&authority("clients"), |_| {}),
            false,
        ),
        ("of an expired authority", client(expired_ca, |_| {}), false),
        (
            "with the one between",
            with_chain(client(&good, |_| {}), &good),
            true,
        ),
        ("without the one between", client(&good, |_| {}), false),
        (
            "with a stranger between",
            with_chain(client(ca, |_| {}), &authority("x")),
            true,
        ),
        (
            "between: no authority",
            with_chain(client(&no_authority, |_| {}), &no_authority),
            false,
        ),
        (
            "between: no signer",
            with_chain(client(&no_signer, |_| {}), &no_signer),
            false,
        ),
        (
            "between: for servers",
            with_chain(client(&of_servers, |_| {}), &of_servers),
            false,
        ),
    ]
}

#[tokio::test]
async fn certificates_mean_what_they_mean_to_the_server() {
    let ca = authority("clients");
    let mut params = authority_params("expired");
    params.not_after = date_time_ymd(2020, 1, 1);
    let expired = Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let bundle = ca.pem() + &expired.pem();

    for anonymous in [false, true] {
        let servers = Servers::start(anonymous, b"t,alice,7\n", &bundle).await;
        for (what, certificates, known) in certificates(&ca, &expired) {
            let mut request = Request {
                certificates: Some(certificates),
                headers: Vec::new(),
            };
            for (token, somebody) in [(None, known), (Some("t"), true), (Some("u"), known)] {
                let bearer = token.map(|token| format!("Bearer {token}").into());
                request.headers = bearer.map(|it| ("Authorization", it)).into_iter().collect();
                let (real, ours) = (servers.real(&request).await, servers.ours(&request).await);
                assert_eq!(ours, real, "{what}, token {token:?}, anonymous {anonymous}");
                assert_eq!(
                    real.is_object(),
                    somebody,
                    "{what}, token {token:?}: {real}"
                );
            }
        }

        // By decision stricter than the server.
        let any = client(&ca, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
        });
        let spaces = named(&ca, |name| {
            name.push(DnType::CommonName, "carol");
            name.push(DnType::OrganizationName, " system:masters");
        });
        for certificates in [any, spaces] {
            let request = Request {
                certificates: Some(certificates),
                headers: Vec::new(),
            };
            assert_eq!(servers.real(&request).await["username"], "carol");
            assert_eq!(servers.ours(&request).await, "401");
        }
    }
}

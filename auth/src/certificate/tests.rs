use std::cell::Cell;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};

use rcgen::string::BmpString;

use super::*;
use crate::user::UserInfo;

thread_local! {
    /// How many chains this test has had verified.
    pub(super) static VERIFIED: Cell<usize> = const { Cell::new(0) };
}

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn authority(name: &str) -> Issuer {
    Issuer::self_signed(authority_params(name), KeyPair::generate().unwrap()).unwrap()
}

/// A client's certificate, changed in some way.
fn client(issuer: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.distinguished_name.push(DnType::CommonName, "carol");
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    params.signed_by(&key, issuer).unwrap().der().clone()
}

fn subject(change: impl FnOnce(&mut rcgen::DistinguishedName)) -> CertificateDer<'static> {
    client(&authority("ca"), |params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params.distinguished_name);
    })
}

fn trusting(issuers: &[&Issuer]) -> ClientCertificates {
    let pem: String = issuers.iter().map(|issuer| issuer.pem()).collect();
    ClientCertificates::new(pem.as_bytes()).unwrap()
}

fn name(outcome: Result<Option<TokenUser>, Fault>) -> Result<Option<String>, String> {
    let name = outcome.map(|user| user.map(|user| user.user.name));
    name.map_err(|fault| fault.why)
}

fn at(year: i32, month: u8, day: u8) -> UnixTime {
    let seconds = date_time_ymd(year, month, day).unix_timestamp();
    UnixTime::since_unix_epoch(Duration::from_secs(seconds.try_into().unwrap()))
}

#[test]
fn a_subject_is_a_user() {
    let check = |certificate: &CertificateDer<'_>, expected: &str| {
        let user = subject::user(&parse(certificate).unwrap(), certificate);
        let shown = match user {
            Ok(Some(user)) => format!("{}/{}{:?}", user.name, user.uid, user.groups),
            Ok(None) => "-".to_owned(),
            Err(why) => why,
        };
        assert_eq!(shown, expected);
    };
    let common_name = || DnType::CustomDnType(vec![2, 5, 4, 3]);
    let organization = || DnType::CustomDnType(vec![2, 5, 4, 10]);
    let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    check(
        &subject(|it| it.push(DnType::CommonName, "jörg")),
        "jörg/[]",
    );
    check(
        &subject(|it| {
            it.push(DnType::OrganizationName, "a,b");
            it.push(DnType::CommonName, "u");
            it.push(organization(), "東京");
            it.push(DnType::OrganizationalUnitName, "c");
        }),
        r#"u/["a,b", "東京"]"#,
    );
    check(
        &subject(|it| {
            it.push(DnType::CommonName, "first");
            it.push(common_name(), "last");
            it.push(uid(), "7");
        }),
        "last/7[]",
    );
    check(&subject(|it| it.push(DnType::OrganizationName, "a")), "-");
    check(&subject(|it| it.push(DnType::CommonName, "")), "-");
    check(
        &subject(|it| {
            it.push(DnType::CommonName, "u");
            it.push(uid(), "");
        }),
        "an empty uid in its subject",
    );
    check(
        &subject(|it| {
            let name = BmpString::try_from("u").unwrap();
            it.push(DnType::CommonName, rcgen::DnValue::BmpString(name));
        }),
        "the value of 2.5.4.3 in its subject is no text",
    );
    // rcgen writes no attribute twice: the last number of another one becomes that of the uid.
    let twice = subject(|it| {
        it.push(DnType::CommonName, "u");
        it.push(uid(), "7");
        it.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 3]), "8");
    });
    let oid = |last| [6, 9, 0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, last];
    let place = twice.windows(11).position(|part| part == oid(3)).unwrap();
    let mut twice = twice.to_vec();
    twice[place..place + 11].copy_from_slice(&oid(2));
    check(&twice.into(), "several uids in its subject");
}

#[test]
fn a_user_carries_the_credential_and_when_it_ends() {
    let ca = authority("ca");
    let certificate = client(&ca, |params| params.not_after = date_time_ymd(2050, 2, 1));
    let digest = Sha256::digest(&certificate);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let user = trusting(&[&ca]).user(&[certificate]).unwrap().unwrap();
    let last: SystemTime = date_time_ymd(2050, 2, 1).into();
    assert_eq!(user.expires, Some(last + Duration::from_secs(1)));
    let expected = UserInfo {
        name: "carol".to_owned(),
        extra: [(
            "authentication.kubernetes.io/credential-id".to_owned(),
            vec![format!("X509SHA256={digest}")],
        )]
        .into(),
        ..UserInfo::default()
    };
    assert_eq!(user.user, expected);
}

#[test]
fn only_a_certificate_for_clients_of_a_known_authority_counts() {
    let (ca, other) = (authority("ca"), authority("ca"));
    let trusted = trusting(&[&ca]);
    let check = |what: &str, sent: &[CertificateDer<'static>], good: bool| {
        let got = name(trusted.user(sent));
        let expected = good.then(|| Some("carol".to_owned()));
        assert_eq!(got.clone().ok(), expected, "{what}: {got:?}");
    };
    let usages = |usages: &[ExtendedKeyUsagePurpose]| {
        client(&ca, |params| params.extended_key_usages = usages.to_vec())
    };
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, CodeSigning, ServerAuth};
    check("a good one", &[client(&ca, |_| {})], true);
    check("both usages", &[usages(&[ServerAuth, ClientAuth])], true);
    check("no usage", &[usages(&[])], true);
    check("for servers", &[usages(&[ServerAuth])], false);
    check("for code", &[usages(&[CodeSigning])], false);
    // Stricter than the server.
    check("any usage", &[usages(&[Any])], false);
    check(
        "another authority of that name",
        &[client(&other, |_| {})],
        false,
    );
    check("none", &[], false);
    check(
        "no certificate",
        &[CertificateDer::from(vec![0x30, 0])],
        false,
    );
    let longer = [&client(&ca, |_| {})[..], b"x"].concat();
    check("more than one", &[longer.into()], false);
    let mut forged = client(&ca, |_| {}).to_vec();
    let place = forged
        .windows(5)
        .rposition(|part| part == b"carol")
        .unwrap();
    forged[place..place + 5].copy_from_slice(b"admin");
    check("a changed one", &[forged.into()], false);
    check("the authority itself", &[ca.der().clone()], false);
    let unknown = CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0]);
    let critical = client(&ca, |params| {
        let mut unknown = unknown;
        unknown.set_criticality(true);
        params.custom_extensions = vec![unknown];
    });
    check("a critical extension", &[critical], false);
}

#[test]
fn authorities_between_are_those_that_may_sign() {
    let ca = authority("ca");
    let trusted = trusting(&[&ca]);
    let between = |change: fn(&mut CertificateParams)| {
        let mut params = authority_params("between");
        change(&mut params);
        Issuer::signed_by(params, KeyPair::generate().unwrap(), &ca).unwrap()
    };
    let check = |between: &Issuer, good: bool| {
        let sent = [client(between, |_| {}), between.der().clone()];
        let got = name(trusted.user(&sent));
        assert_eq!(got.is_ok(), good, "{got:?}");
        assert!(trusted.user(&sent[..1]).is_err(), "without the one between");
    };
    check(&between(|_| {}), true);
    check(
        &between(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]),
        true,
    );
    check(&between(|params| params.is_ca = IsCa::NoCa), false);
    check(&between(|params| params.is_ca = IsCa::ExplicitNoCa), false);
    check(
        &between(|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]),
        false,
    );
    check(
        &between(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }),
        false,
    );
    check(
        &between(|params| params.not_after = date_time_ymd(2020, 1, 1)),
        false,
    );
}

#[test]
fn certificates_and_authorities_count_while_they_are_valid() {
    let mut params = authority_params("ca");
    params.not_before = date_time_ymd(2030, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
    let ca = Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let certificate = client(&ca, |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2050, 1, 1);
    });
    let short = client(&ca, |params| {
        params.not_before = date_time_ymd(2031, 1, 1);
        params.not_after = date_time_ymd(2032, 1, 1);
    });
    let trusted = trusting(&[&ca]);
    // Twice, and to and fro: what is remembered counts no longer than what it rests on.
    for _ in 0..2 {
        for (certificate, now, good) in [
            (&short, at(2030, 6, 1), false),
            (&short, at(2031, 6, 1), true),
            (&short, at(2032, 1, 1), true),
            (&short, at(2032, 1, 2), false),
            (&certificate, at(2029, 12, 31), false),
            (&certificate, at(2030, 1, 1), true),
            (&certificate, at(2040, 1, 1), true),
            (&certificate, at(2040, 1, 2), false),
        ] {
            let got = name(trusted.user_at(std::slice::from_ref(certificate), now));
            assert_eq!(got.is_ok(), good, "{now:?}: {got:?}");
        }
    }
}

#[test]
fn a_certificate_is_verified_once_whatever_is_found() {
    let (ca, other) = (authority("ca"), authority("other"));
    let trusted = trusting(&[&ca]);
    let later = client(&ca, |params| params.not_before = date_time_ymd(2031, 1, 1));
    let usage = client(&ca, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let nonsense = CertificateDer::from(vec![0x30, 0]);
    let now = at(2030, 6, 1);
    let verified = |sent: &[CertificateDer<'static>], now| {
        let before = VERIFIED.get();
        let got = name(trusted.user_at(sent, now));
        (got, VERIFIED.get() - before)
    };
    for sent in [
        vec![client(&ca, |_| {})],
        vec![client(&other, |_| {})],
        // What is sent beside it is a part of it.
        vec![client(&other, |_| {}), other.der().clone()],
        vec![later.clone()],
        vec![usage],
        vec![nonsense],
    ] {
        let (first, count) = verified(&sent, now);
        assert_eq!(count, 1, "{first:?}");
        for _ in 0..3 {
            assert_eq!(verified(&sent, now), (first.clone(), 0));
        }
    }
    // Its time has come; and the clock is set back.
    let later = [later];
    let carol = Ok(Some("carol".to_owned()));
    assert_eq!(verified(&later, at(2031, 1, 1)), (carol.clone(), 1));
    assert_eq!(verified(&later, at(2031, 1, 2)), (carol, 0));
    assert!(verified(&later, now).0.is_err());
}

#[test]
fn refused_certificates_push_no_good_one_out() {
    let ca = authority("ca");
    let trusted = trusting(&[&ca]);
    let good = [client(&ca, |_| {})];
    trusted.user(&good).unwrap();
    for at in 0..30_000_u32 {
        let nonsense = CertificateDer::from(at.to_be_bytes().to_vec());
        trusted.user(&[nonsense]).unwrap_err();
    }
    let bundle = trusted.bundle.load();
    bundle.refused.run_pending_tasks();
    assert!(bundle.refused.weighted_size() <= REFUSED);
    let before = VERIFIED.get();
    trusted.user(&good).unwrap();
    assert_eq!(VERIFIED.get(), before);
}

#[test]
fn an_authority_that_is_removed_counts_no_more() {
    let (old, new) = (authority("old"), authority("new"));
    let trusted = trusting(&[&old]);
    let listener = trusted.clone();
    let sent = |ca: &Issuer| [client(ca, |_| {})];
    let (of_old, of_new) = (sent(&old), sent(&new));
    trusted.user(&of_old).unwrap();
    trusted.user(&of_new).unwrap_err();
    trusted.replace(b"nothing").unwrap_err();
    listener.user(&of_old).unwrap();
    trusted.replace(new.pem().as_bytes()).unwrap();
    listener.user(&of_old).unwrap_err();
    // It was refused a moment ago.
    listener.user(&of_new).unwrap();
    assert_eq!(listener.hints().len(), 1);
}

#[test]
fn a_bundle_holds_authorities_and_nothing_else() {
    let ca = authority("ca");
    let check = |pem: &str, expected: &str| {
        let got = ClientCertificates::new(pem.as_bytes()).map(|_| ());
        assert_eq!(got, Err(expected.to_owned()));
    };
    check("", "no certificate in it");
    check("nothing", "no certificate in it");
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    check(&key.serialize_pem(), "no certificate in it");
    let mut params = authority_params("alice");
    params.is_ca = IsCa::NoCa;
    let own = Issuer::self_signed(params, key).unwrap();
    check(
        &format!("{}{}", ca.pem(), own.pem()),
        "certificate 2: CN=alice is the certificate of no authority",
    );
    let mut params = authority_params("alice");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let no_signer = Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    check(
        &no_signer.pem(),
        "certificate 1: CN=alice is the certificate of no authority",
    );
    trusting(&[&ca, &authority("other"), &ca]);
    assert_eq!(
        format!("{:?}", trusting(&[&ca])),
        "ClientCertificates { .. }"
    );
}

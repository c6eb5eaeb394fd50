//! An entrance over files that change.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use fleetcache_auth::{AuthenticationError, Credentials, Method};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::*;
use crate::args::ServeArgs;
use crate::clusters::{Checked, check_file};
use crate::state_dir::StateDir;

type Issuer = CertifiedIssuer<'static, KeyPair>;

const OWN: &str = "the-proxys-own";

/// A directory with a configuration and what it names.
struct Files(TempDir);

impl Files {
    fn new(rest: &str) -> Self {
        let of_its_own = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(of_its_own).tempdir();
        let files = Self(folder.unwrap());
        files.configure(rest);
        files
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.0.path().join(name), content).unwrap();
    }

    fn configure(&self, rest: &str) {
        let head = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nstateDir: state\n";
        self.write("fleetcache.yaml", &format!("{head}{rest}"));
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("fleetcache.yaml")
    }

    fn config(&self) -> Config {
        let args = ServeArgs {
            config: Some(self.path()),
            ..ServeArgs::default()
        };
        Config::from_args(&args, &|_| None).unwrap()
    }

    fn start(&self) -> Entrance {
        let state = StateDir::open(&self.0.path().join("state")).unwrap();
        let own = state.certificates(&[]).unwrap();
        let config = self.config();
        let files = EntranceFiles::read(&config, &mut Vec::new()).unwrap();
        Entrance::new(own, OWN.to_owned(), &config, files).unwrap()
    }

    /// What `config check` says, without the path of the file.
    fn mistakes(&self) -> Vec<String> {
        let told = self.checked().mistakes.0.into_iter();
        told.map(|it| self.without_path(&format!("{}: {}", it.path, it.problem)))
            .collect()
    }

    fn checked(&self) -> Checked {
        check_file(&self.path(), &|name| {
            (name == "HOME").then(|| "/nowhere".into())
        })
    }

    fn without_path(&self, text: &str) -> String {
        let prefix = format!("{}: ", self.path().display());
        text.strip_prefix(&prefix).unwrap().to_owned()
    }
}

/// Takes over what the files hold now; whether anything is different.
fn reload(entrance: &mut Entrance, files: &Files) -> bool {
    let config = files.config();
    let read = EntranceFiles::read(&config, &mut Vec::new()).unwrap();
    let made = entrance.prepare(&config, read).unwrap();
    let is_different = made.is_some();
    made.into_iter().for_each(|made| entrance.replace(made));
    is_different
}

/// The name of the user, and how it is known.
async fn who(
    entrance: &InForce,
    token: Option<&str>,
    sent: Option<&[CertificateDer<'static>]>,
) -> Result<(String, Method), &'static str> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
        headers.insert(AUTHORIZATION, value);
    }
    let credentials = Credentials {
        headers: &headers,
        certificates: sent,
    };
    let authenticator = entrance.authentication.load_full().unwrap();
    match authenticator.authenticate(credentials, None).await {
        Ok(known) => Ok((known.user.name.clone(), known.method)),
        Err(AuthenticationError::Unauthenticated(_)) => Err("nobody"),
        Err(AuthenticationError::Unavailable(_)) => Err("unavailable"),
    }
}

fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn client(issuer: &Issuer, name: &str) -> Vec<CertificateDer<'static>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&KeyPair::generate().unwrap(), issuer);
    vec![certificate.unwrap().der().clone()]
}

/// A 401.
const NOBODY: Result<(String, Method), &str> = Err("nobody");

#[tokio::test]
async fn the_proxys_own_token_counts_where_nothing_else_does() {
    let files = Files::new("");
    let mut entrance = files.start();
    let in_force = entrance.in_force();
    let own = || who(&in_force, Some(OWN), None);
    let admin = ("fleetcache:admin".to_owned(), Method::Generated);
    assert_eq!(own().await, Ok(admin.clone()));
    assert!(!reload(&mut entrance, &files), "all is as it was");

    files.write("tokens.csv", "t1,alice,1\n");
    files.configure("authentication: { tokenFile: tokens.csv }");
    assert!(reload(&mut entrance, &files));
    assert_eq!(own().await, NOBODY);
    let alice = who(&in_force, Some("t1"), None).await;
    assert_eq!(alice, Ok(("alice".to_owned(), Method::TokenFile)));

    files.configure("authentication: { disabled: true }");
    assert!(reload(&mut entrance, &files));
    assert!(in_force.authentication.load().is_none());
    files.configure("");
    assert!(reload(&mut entrance, &files));
    assert_eq!(own().await, Ok(admin));
    assert_eq!(who(&in_force, Some("t1"), None).await, NOBODY);
}

#[tokio::test]
async fn users_come_and_go_with_the_files() {
    let (one, other) = (authority("one"), authority("other"));
    let [carol, dave] = [client(&one, "carol"), client(&other, "dave")];
    let files =
        Files::new("tls: { clientCAFile: clients.crt }\nauthentication: { tokenFile: tokens.csv }");
    files.write("tokens.csv", "t1,alice,1\nt2,system:admin,2\n");
    files.write("clients.crt", &one.pem());
    let mut entrance = files.start();
    let in_force = entrance.in_force();
    let by_certificate = |sent| who(&in_force, None, Some(sent));
    let known = |name: &str| Ok((name.to_owned(), Method::Certificate));
    assert_eq!(by_certificate(&carol).await, known("carol"));
    assert_eq!(by_certificate(&dave).await, NOBODY);
    assert_eq!(who(&in_force, Some("t2"), None).await, NOBODY);
    let tls = in_force.tls.load_full();

    files.write("clients.crt", &other.pem());
    files.write("tokens.csv", "t3,bob,1\n");
    assert!(reload(&mut entrance, &files));
    assert_eq!(by_certificate(&carol).await, NOBODY);
    assert_eq!(by_certificate(&dave).await, known("dave"));
    assert_eq!(who(&in_force, Some("t1"), None).await, NOBODY);
    assert!(who(&in_force, Some("t3"), None).await.is_ok());
    let now = in_force.tls.load_full();
    assert!(!Arc::ptr_eq(&tls, &now), "clients choose by the new one");

    files.write("tokens.csv", "t2,system:admin,2\n");
    files.configure(
        "tls: { clientCAFile: clients.crt }\n\
         authentication: { tokenFile: tokens.csv, allowSystemNames: ['system:admin'], anonymous: true }",
    );
    assert!(reload(&mut entrance, &files));
    assert!(who(&in_force, Some("t2"), None).await.is_ok());
    let anonymous = ("system:anonymous".to_owned(), Method::Anonymous);
    assert_eq!(who(&in_force, None, None).await, Ok(anonymous));
}

#[test]
fn every_mistake_in_the_files_is_told() {
    let files = Files::new(
        "tls: { certFile: tls.crt, keyFile: tls.key, clientCAFile: clients.crt }\n\
         authentication: { tokenFile: tokens.csv, configFile: issuers.yaml }",
    );
    let at = |name: &str| files.0.path().join(name).display().to_string();
    let unread = "it cannot be read: No such file or directory (os error 2)";
    let expect = [
        ("tls.certFile", "tls.crt"),
        ("tls.keyFile", "tls.key"),
        ("tls.clientCAFile", "clients.crt"),
        ("authentication.tokenFile", "tokens.csv"),
        ("authentication.configFile", "issuers.yaml"),
    ]
    .map(|(key, name)| format!("{key}: {}: {unread}", at(name)));
    assert_eq!(files.mistakes(), expect);

    let authority = authority("clients");
    let own = authority.key().serialize_pem();
    for name in ["tls.crt", "tls.key", "clients.crt"] {
        files.write(name, "");
    }
    files.write("tokens.csv", "t1,alice,1,\nt2\nt3,,\n");
    files.write(
        "issuers.yaml",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {}\njwt: [ {} ]\n",
    );
    let mistakes = files.mistakes();
    let [certificate, key, clients, tokens, others, issuers @ ..] = &mistakes[..] else {
        panic!("{mistakes:?}");
    };
    let told = |key: &str, name: &str, problem: &str| format!("{key}: {}: {problem}", at(name));
    assert_eq!(
        *certificate,
        told("tls.certFile", "tls.crt", "no certificate in PEM is in it")
    );
    assert_eq!(
        *key,
        told("tls.keyFile", "tls.key", "no private key in PEM is in it")
    );
    assert_eq!(
        *clients,
        told("tls.clientCAFile", "clients.crt", "no certificate in it")
    );
    let line = "line 2: at least 3 columns (token, user name, user uid) are needed, found 1";
    assert_eq!(
        *tokens,
        told("authentication.tokenFile", "tokens.csv", line)
    );
    assert_eq!(
        *others,
        told(
            "authentication.tokenFile",
            "tokens.csv",
            "line 3: the user has no name"
        )
    );
    // Beside the mistakes, too.
    let warnings = files.checked().warnings;
    let odd = told("authentication.tokenFile", "tokens.csv", "line 1: a group ");
    assert!(
        warnings.len() == 1 && files.without_path(&warnings[0]).starts_with(&odd),
        "{warnings:?}"
    );
    let of_issuers = format!("authentication.configFile: {}: ", at("issuers.yaml"));
    assert!(issuers.len() > 2, "each: {issuers:?}");
    assert!(
        issuers.iter().all(|it| it.starts_with(&of_issuers)),
        "{issuers:?}"
    );

    // A key that is another certificate's.
    files.configure("tls: { certFile: tls.crt, keyFile: tls.key }");
    files.write("tls.crt", &authority.pem());
    files.write("tls.key", &KeyPair::generate().unwrap().serialize_pem());
    let mistakes = files.mistakes();
    assert!(
        mistakes[0].starts_with("tls.certFile: it and keyFile cannot be served: "),
        "{mistakes:?}"
    );
    files.write("tls.key", &own);
    assert_eq!(files.mistakes(), [""; 0]);
}

#[tokio::test]
async fn what_a_cluster_has_said_of_tokens_counts_on_where_the_same_is_asked() {
    let reviews = |rest: &str| {
        format!(
            "authentication: {{ tokenFile: tokens.csv, tokenReview: {{ cluster: a{rest} }} }}\n"
        )
    };
    let files = Files::new(&reviews(""));
    files.write("tokens.csv", "t1,alice,1\n");
    let mut entrance = files.start();
    let named = |entrance: &Entrance| entrance.made_of.named.clone().unwrap();
    let first = named(&entrance);
    files.write("tokens.csv", "t2,alice,1\n");
    files.configure(&reviews(", targetCluster: true"));
    assert!(reload(&mut entrance, &files));
    assert!(Arc::ptr_eq(&first, &named(&entrance)));
    files.configure(&reviews(", audiences: [b]"));
    assert!(reload(&mut entrance, &files));
    assert!(!Arc::ptr_eq(&first, &named(&entrance)));
}

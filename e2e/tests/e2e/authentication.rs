//! Whom kube-apiserver takes a request for, and that our authenticator takes it for the same: the same token file, the
//! same authority, the same bytes.

mod certificates;

use std::sync::Arc;

use fleetcache_auth::{
    AuthenticationError, Authenticator, ClientCertificates, Credentials, Methods, TokenFile,
    UserInfo,
};
use fleetcache_e2e::control_plane::{ControlPlane, Options, User};
use fleetcache_e2e::kubeconfig::Credential;
use http::{HeaderMap, HeaderName, HeaderValue};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

type Issuer = CertifiedIssuer<'static, KeyPair>;
/// Certificates, and the key of the first.
type Sent = (Vec<CertificateDer<'static>>, KeyPair);

/// What a client shows: its certificates, and lines of headers.
struct Request {
    certificates: Option<Sent>,
    headers: Vec<(&'static str, Vec<u8>)>,
}

/// The servers that the table is tried on: one that lets in who shows nothing, and one that does not.
struct Servers {
    real: ControlPlane,
    ours: Authenticator,
    /// The file of the authorities, which the server looks at now and then.
    _dir: TempDir,
}

impl Servers {
    async fn start(anonymous: bool, tokens: &[u8], authority: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("clients.crt");
        std::fs::write(&ca, authority).unwrap();
        let real = ControlPlane::start(Options {
            apiserver_args: vec![
                format!("--client-ca-file={}", ca.display()),
                format!("--anonymous-auth={anonymous}"),
            ],
            tokens: tokens.to_vec(),
            ..Options::named("own")
        });
        let ours = Authenticator::new(Methods {
            certificates: Some(ClientCertificates::new(authority.as_bytes()).unwrap()),
            token_file: Some(TokenFile::new(tokens).unwrap()),
            anonymous,
            ..Methods::default()
        });
        Self {
            real: real.await.unwrap(),
            ours,
            _dir: dir,
        }
    }

    /// What impersonates, as an administrator.
    fn impersonating(&self, headers: &[(&'static str, &str)]) -> Request {
        let Credential::Token(token) = self.real.context(User::Admin).unwrap().credential else {
            panic!("the administrator has no token");
        };
        let bearer = ("Authorization", format!("Bearer {token}").into());
        let headers = headers.iter().map(|&(name, value)| (name, value.into()));
        Request {
            certificates: None,
            headers: [bearer].into_iter().chain(headers).collect(),
        }
    }

    /// Who the real server says the client is, in the words of a `UserInfo`; "anonymous" or "401".
    async fn real(&self, request: &Request) -> Value {
        let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
        let mut bytes = b"POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n".to_vec();
        bytes.extend(format!("Content-Length: {}\r\nConnection: close\r\n", body.len()).bytes());
        for (name, value) in &request.headers {
            bytes.extend([name.as_bytes(), b":", value, b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        bytes.extend(body.bytes());

        let endpoint = self.real.context(User::Admin).unwrap();
        let mut stream = connect(&endpoint.server, &endpoint.ca_pem, request).await;
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        // Go ends a connection without a word of TLS where it has answered with an error.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap();
        match code {
            "401" => json!("401"),
            "403" if body.contains(r#"User \"system:anonymous\" cannot create"#) => {
                json!("anonymous")
            }
            "201" => {
                let review: Value = serde_json::from_str(body).unwrap();
                review["status"]["userInfo"].clone()
            }
            _ => json!(answer),
        }
    }

    /// Who our authenticator says the client is.
    async fn ours(&self, request: &Request) -> Value {
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            // HTTP/1.1 has no spaces around a value.
            let value = HeaderValue::from_bytes(value.trim_ascii()).unwrap();
            headers.append(name.parse::<HeaderName>().unwrap(), value);
        }
        let certificates = request
            .certificates
            .as_ref()
            .map(|(sent, _)| sent.as_slice());
        let credentials = Credentials {
            headers: &headers,
            certificates,
        };
        let user = match self.ours.authenticate(credentials).await {
            Err(AuthenticationError::Unauthenticated(_)) => return json!("401"),
            Err(error) => panic!("{error:?}"),
            Ok(found) => found.user,
        };
        if user.name == "system:anonymous" {
            return json!("anonymous");
        }
        let mut shown = json!({"username": user.name, "groups": user.groups});
        if !user.uid.is_empty() {
            shown["uid"] = json!(user.uid);
        }
        if !user.extra.is_empty() {
            shown["extra"] = json!(user.extra);
        }
        shown
    }
}

async fn connect(
    server: &str,
    ca_pem: &str,
    request: &Request,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match &request.certificates {
        Some((sent, key)) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
            config.with_client_auth_cert(sent.clone(), key).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    let address = server.strip_prefix("https://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

const TOKENS: &[&[u8]] = &[
    b"\xef\xbb\xbfmarked,bom,1\n",
    b"t,alice,7\n",
    b"groups,bob,8,\"a,b c,\xc3\xbc\"\r\n",
    b"\n",
    b"unquoted,bob,8,a,b\n",
    b"empty,bob,,\n",
    b"empties,bob,,\"a,,a\"\n",
    b"twice,first,1,a\n",
    b"twice,second,2\n",
    b",nobody,9\n",
    b"\"quo\"\"ted\",carl,1,\"x\"\"y\"\n",
    b"#hash,hash,1\n",
    b"j\xc3\xb6,jo,1\n",
    b"\xff,raw,1\n",
    b"a\tb,tab,1\n",
];

#[tokio::test]
async fn headers_mean_what_they_mean_to_the_server() {
    let ca = authority("clients");
    let authorizations: &[&[&[u8]]] = &[
        &[],
        &[b""],
        &[b" "],
        &[b"Bearer"],
        &[b"Bearer "],
        &[b"Bearer     "],
        &[b"Bearer t"],
        &[b"bearer t"],
        &[b"BEARER t"],
        &[b"   Bearer t   "],
        &[b"Bearer  t"],
        &[b"Bearer\tt"],
        &[b"Bearer t\t"],
        &[b"Bearer t x"],
        &[b"Bearer t, Bearer t"],
        &[b"Bearer: t"],
        &[b"Bearer\xc2\xa0t"],
        &[b"Bearer t\xc2\xa0"],
        &[b"Bearer t\xff\xc2\xa0"],
        &[b"Bearer\xfft"],
        &[b"Basic dDp0"],
        &[b"t"],
        &[b"Bearer T"],
        &[b"Bearer nobody"],
        &[b"Bearer marked"],
        &[b"Bearer \xef\xbb\xbfmarked"],
        &[b"Bearer groups"],
        &[b"Bearer unquoted"],
        &[b"Bearer empty"],
        &[b"Bearer empties"],
        &[b"Bearer twice"],
        &[b"Bearer quo\"ted"],
        &[b"Bearer #hash"],
        &[b"Bearer j\xc3\xb6"],
        &[b"Bearer j\xf6"],
        &[b"Bearer \xff"],
        &[b"Bearer a\tb"],
    ];
    let plain = authorizations.iter().map(|values| Request {
        certificates: None,
        headers: values
            .iter()
            .map(|value| ("Authorization", value.to_vec()))
            .collect(),
    });
    // `t`, nobody's `u`, nothing, and no base64.
    let [t, u, empty, odd] =
        ["dA", "dQ", "", "!"].map(|token| format!("base64url.bearer.authorization.k8s.io.{token}"));
    let subprotocols = [
        vec![format!("{t}, x")],
        vec![format!("x,{t}")],
        vec![t.clone(), "x".to_owned()],
        vec![t.clone()],
        vec![format!("{t}, {t}, x")],
        vec![format!("{t}, {u}, x")],
        vec![format!("{u}, x")],
        vec![format!("{empty}, x")],
        vec![format!("{odd}, x")],
        vec!["x".to_owned()],
    ];
    let bearers = [None, Some("Bearer nobody"), Some("Bearer groups")];
    let websockets = subprotocols.iter().flat_map(|lines| {
        bearers.into_iter().map(move |bearer| {
            let mut headers = vec![
                ("Connection", b"Upgrade".to_vec()),
                ("Upgrade", b"websocket".to_vec()),
            ];
            let bearer = bearer.map(|bearer| ("Authorization", bearer.into()));
            let lines = lines
                .iter()
                .map(|line| ("Sec-WebSocket-Protocol", line.clone().into()));
            headers.extend(bearer.into_iter().chain(lines));
            Request {
                certificates: None,
                headers,
            }
        })
    });
    let table: Vec<Request> = plain.chain(websockets).collect();
    for anonymous in [false, true] {
        let servers = Servers::start(anonymous, &TOKENS.concat(), &ca.pem()).await;
        let mut known = 0;
        for request in &table {
            let (real, ours) = (servers.real(request).await, servers.ours(request).await);
            let shown: Vec<_> = request
                .headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.escape_ascii()))
                .collect();
            assert_eq!(ours, real, "anonymous {anonymous}: {shown:?}");
            known += usize::from(real.is_object());
        }
        assert!(known > 20, "{known} of {} are somebody", table.len());

        // By decision stricter than the server, which takes the first.
        let both = [b"Bearer t", b"Bearer u"].map(|value| ("Authorization", value.to_vec()));
        let request = Request {
            certificates: None,
            headers: both.into(),
        };
        assert_eq!(servers.real(&request).await["username"], "alice");
        assert_eq!(servers.ours(&request).await, "401");
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn authority(name: &str) -> Issuer {
    Issuer::self_signed(authority_params(name), KeyPair::generate().unwrap()).unwrap()
}

#[tokio::test]
async fn only_users_that_pass_the_check_arrive_as_who_they_are() {
    let servers = Servers::start(false, b"", &authority("clients").pem()).await;
    for (name, uid, group) in [
        ("alice", "7", "dev"),
        ("jörg, 東京", "ü", "a,b c"),
        ("alice", "7", ""),
        ("a  b", "", "\u{b7}"),
        (" alice", "7", "dev"),
        ("alice", "7 ", "dev"),
        ("alice", "7", " system:masters"),
        ("alice", "7", "dev\t"),
        ("alice", "7", " "),
    ] {
        let user = UserInfo {
            name: name.to_owned(),
            uid: uid.to_owned(),
            groups: vec![group.to_owned()],
            ..UserInfo::default()
        };
        let mut headers = vec![("Impersonate-User", name), ("Impersonate-Group", group)];
        headers.extend((!uid.is_empty()).then_some(("Impersonate-Uid", uid)));
        let arrived = servers.real(&servers.impersonating(&headers)).await;
        let same = arrived["username"] == name
            && arrived["uid"].as_str().unwrap_or_default() == uid
            && arrived["groups"][0] == group;
        assert_eq!(user.check().is_ok(), same, "{user:?} arrives as {arrived}");
    }
}

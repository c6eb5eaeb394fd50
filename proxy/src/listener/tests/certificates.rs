//! Certificates of clients, and of the listener itself.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;

use super::*;
use crate::telemetry::testing::Lines;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Issuer {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

/// A client that shows these certificates, where it is asked for one.
async fn connect(
    server: &TestServer,
    roots: &RootCertStore,
    alpn: &str,
    own: Option<(Vec<CertificateDer<'static>>, &KeyPair)>,
) -> Option<Stream> {
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone());
    let mut config = match own {
        Some((chain, key)) => config.with_client_auth_cert(chain, private(key)).unwrap(),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, server.tcp().await).await;
    stream.ok().map(TokioIo::new)
}

/// What the service sees of the certificates that were sent, over a connection of that protocol.
async fn seen(stream: Stream) -> String {
    let is_http2 = stream.inner().get_ref().1.alpn_protocol() == Some(b"h2");
    let answer = if is_http2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        sender.send_request(get("/chain")).await.unwrap()
    } else {
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(get("/chain")).await.unwrap()
    };
    text(answer).await
}

fn roots(pem: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    roots.add(ca).unwrap();
    roots
}

#[tokio::test]
async fn what_a_client_sends_comes_with_its_requests() {
    let server = TestServer::start(PATIENT).await;
    let (known, stranger) = (authority(), authority());
    let params = CertificateParams::default();
    let key = KeyPair::generate().unwrap();
    let own = params.signed_by(&key, &stranger).unwrap().der().clone();
    let chain = vec![own, stranger.der().clone()];
    let lengths = format!("{:?}", [chain[0].len(), chain[1].len()]);
    let trusted = roots(&server.ca_pem);
    let sent = || Some((chain.clone(), &key));

    // Nobody is asked for one.
    let stream = connect(&server, &trusted, "h2", sent()).await;
    assert_eq!(seen(stream.unwrap()).await, "[]");

    let certificates = StateDir::open(tempfile::tempdir().unwrap().path())
        .unwrap()
        .certificates(&[])
        .unwrap();
    let clients = ClientCertificates::new(known.pem().as_bytes()).unwrap();
    let tls = tls_config(&certificates.chain, &certificates.key, Some(&clients)).unwrap();
    server.tls.store(tls);
    // The certificate is another one, too.
    assert!(connect(&server, &trusted, "h2", None).await.is_none());
    let trusted = roots(&certificates.ca_pem);
    for alpn in ["h2", "http/1.1"] {
        // Whose it is, is another's matter: one of an unknown authority is no reason to hang up.
        let stream = connect(&server, &trusted, alpn, sent()).await.unwrap();
        assert_eq!(seen(stream).await, lengths);
        let stream = connect(&server, &trusted, alpn, None).await.unwrap();
        assert_eq!(seen(stream).await, "[]");
    }
}

/// A client that shows a certificate whatever that is.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_certificate_with_which_there_is_no_connection_is_told_of() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _log = tracing::subscriber::set_default(subscriber);
    let server = TestServer::start(PATIENT).await;
    let certificates = StateDir::open(tempfile::tempdir().unwrap().path())
        .unwrap()
        .certificates(&[])
        .unwrap();
    let known = authority();
    let clients = ClientCertificates::new(known.pem().as_bytes()).unwrap();
    let tls = tls_config(&certificates.chain, &certificates.key, Some(&clients)).unwrap();
    server.tls.store(tls);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::default()
        .signed_by(&key, &known)
        .unwrap();
    // `[0] INTEGER 2` is version 3, and 0 is version 1.
    let mut first = own.der().to_vec();
    let at = first.windows(5).position(|it| it == [0xa0, 3, 2, 1, 2]);
    first[at.unwrap() + 4] = 0;
    let provider = aws_lc_rs::default_provider();
    let key = provider
        .key_provider
        .load_private_key(private(&key))
        .unwrap();
    let shown = CertifiedKey::new(vec![CertificateDer::from(first)], key);
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(&certificates.ca_pem))
        .with_client_cert_resolver(Arc::new(Shows(Arc::new(shown))));
    let connector = TlsConnector::from(Arc::new(config));
    for _ in 0..2 {
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = connector.connect(name, server.tcp().await).await.unwrap();
        // The server ends it after the client's last message.
        assert!(stream.read_to_end(&mut Vec::new()).await.is_err());
    }
    // Somebody who hangs up is nothing to tell.
    drop(server.tcp().await);
    let text = lines.text();
    let told: Vec<_> = text.lines().filter(|it| it.contains("handshake")).collect();
    let [line] = told[..] else {
        panic!("{text}");
    };
    assert!(
        line.contains("client's certificate ends the TLS handshake"),
        "{line}"
    );
    assert!(
        line.contains("UnsupportedCertVersion") && line.contains("127.0.0.1"),
        "{line}"
    );
}

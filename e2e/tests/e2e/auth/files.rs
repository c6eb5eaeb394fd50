//! What users are known by changes while the proxy runs. The cluster is simulated; the proxy is the real one.

use fleetcache_e2e::kubeconfig::Credential;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

use super::*;

pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;

const PATH: &str = "/api/v1/configmaps";

/// What is said of a certificate beside a key that is not its own.
const HALF: &str = "it and keyFile cannot be served";

struct Changing {
    proxy: Proxy,
    files: TempDir,
    _cluster: SimCluster,
}

impl Changing {
    async fn start(rest: &str, content: &[(&str, &str)]) -> Self {
        let cluster = SimCluster::start(SimConfig::new("alpha")).await.unwrap();
        let files = tempfile::tempdir().unwrap();
        kubeconfig::write(&files.path().join("kubeconfig"), &[cluster.context()]).unwrap();
        let config = files.path().join("fleetcache.yaml");
        for (name, text) in content {
            std::fs::write(files.path().join(name), text).unwrap();
        }
        std::fs::write(&config, document(rest)).unwrap();
        let proxy = Proxy::start(Options {
            args: vec!["--config".to_owned(), config.display().to_string()],
            ..Options::default()
        })
        .await
        .unwrap();
        Self {
            proxy,
            files,
            _cluster: cluster,
        }
    }

    /// Writes a file anew, as an editor does that writes another one and renames it.
    fn write(&self, name: &str, text: &str) {
        let next = self.files.path().join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.files.path().join(name)).unwrap();
    }

    fn configure(&self, rest: &str) {
        self.write("fleetcache.yaml", &document(rest));
    }

    fn client(&self, credential: Credential, ca_pem: Option<&str>) -> Client {
        let mut endpoint = self.proxy.endpoint("alpha").unwrap();
        endpoint.credential = credential;
        if let Some(pem) = ca_pem {
            endpoint.ca_pem = pem.to_owned();
        }
        Client::new(&endpoint).unwrap()
    }

    /// Waits until this credential is known, or is not.
    async fn until(&self, credential: &Credential, is_known: bool) {
        let client = self.client(credential.clone(), None);
        self.until_client(&client, is_known).await;
    }

    async fn until_client(&self, client: &Client, is_known: bool) {
        let what = format!("the user to be known: {is_known}");
        wait_for(&what, PATIENCE, async || {
            let status = client.get(PATH).await?.status;
            let now = status == 200;
            anyhow::ensure!(now == is_known && (now || status == 401), "{status}");
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn logged(&self, count: usize, text: &str) {
        wait_for(&format!("{text:?} in the log"), PATIENCE, async || {
            let found = self.proxy.log().matches(text).count();
            match found >= count {
                true => Ok(()),
                false => Err(format!("{found} of {count}")),
            }
        })
        .await
        .unwrap();
    }
}

fn document(rest: &str) -> String {
    format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: kubeconfig }} ] }}\n\
         cache: {{ selfCheckInterval: 2s }}\n{rest}"
    )
}

fn token(text: &str) -> Credential {
    Credential::Token(text.to_owned())
}

pub(crate) fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, both PEM.
pub(crate) fn signed(issuer: &Issuer, params: &CertificateParams) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

pub(crate) fn client(issuer: &Issuer) -> Credential {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "carol");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (cert_pem, key_pem) = signed(issuer, &params);
    Credential::Certificate { cert_pem, key_pem }
}

#[tokio::test]
async fn users_follow_the_files_and_a_broken_one_changes_nothing() {
    let (one, other) = (authority("one"), authority("other"));
    let [carol, dave] = [client(&one), client(&other)];
    let rest = "tls: { clientCAFile: clients.crt }\nauthentication: { tokenFile: tokens.csv }\n";
    let clients = one.pem();
    let content = [("tokens.csv", "t1,alice,1\n"), ("clients.crt", &*clients)];
    let changing = Changing::start(rest, &content).await;
    // A connection that is there already, too.
    let on_hers = changing.client(carol.clone(), None);
    for (credential, is_known) in [
        (&token("t1"), true),
        (&token("t2"), false),
        (&carol, true),
        (&dave, false),
        (&Credential::None, false),
    ] {
        changing.until(credential, is_known).await;
    }
    changing.until_client(&on_hers, true).await;

    changing.write("tokens.csv", "t2,bob,1\n");
    changing.until(&token("t2"), true).await;
    changing.until(&token("t1"), false).await;
    changing.write("clients.crt", &other.pem());
    changing.until(&dave, true).await;
    changing.until(&carol, false).await;
    changing.until_client(&on_hers, false).await;

    changing.write("tokens.csv", "t3\n");
    changing.logged(1, "configuration not reloaded").await;
    changing.logged(1, "at least 3 columns").await;
    changing.until(&token("t2"), true).await;
    changing.write("tokens.csv", "t3,bob,1\n");
    changing.until(&token("t3"), true).await;

    // The proxy's own token, once nothing else counts.
    let own = changing.proxy.root().unwrap().credential;
    changing.until(&own, false).await;
    changing.configure("");
    changing.until(&own, true).await;
    changing.until(&token("t3"), false).await;
    changing.until(&dave, false).await;
}

#[tokio::test]
async fn what_may_not_be_meant_is_warned_of_once() {
    const WARNED: &str = "the configuration may not say what is meant";
    let rest = "authentication: { tokenFile: tokens.csv }\n";
    let odd = "t1,alice,1,\nt2,system:admin,2\n";
    let changing = Changing::start(rest, &[("tokens.csv", odd)]).await;
    let said = |text: &str| changing.proxy.log().matches(text).count();
    let path = changing.files.path().join("tokens.csv");
    const EXPOSED: &str = "every user of this machine may read";
    let exposed = format!("authentication.tokenFile: {EXPOSED} {}", path.display());
    changing.logged(1, &exposed).await;
    for text in [
        "line 1: a group without a name",
        "line 2: nobody has this token: user \\\"system:admin\\\"",
    ] {
        let text = format!("authentication.tokenFile: {}: {text}", path.display());
        changing.logged(1, &text).await;
    }
    changing.until(&token("t2"), false).await;
    changing.write("tokens.csv", "t1,alice,1,\nt3,bob,3,system:masters\n");
    changing.until(&token("t3"), true).await;
    changing
        .logged(1, "line 2: group \\\"system:masters\\\" is left out")
        .await;
    // And what was changed.
    changing
        .logged(1, "\"keys\":\"-\",\"files\":\"authentication.tokenFile\"")
        .await;
    let readers = "authorization: { mode: AlwaysAllow, fleetReaders: { users: [bob] } }\n";
    changing.configure(&format!("{rest}{readers}"));
    changing
        .logged(1, "authorization.mode: \\\"AlwaysAllow\\\"")
        .await;
    let keys = "\"keys\":\"authorization.mode, authorization.fleetReaders\",\"files\":\"-\"";
    changing.logged(1, keys).await;
    assert_eq!(said("nothing is different"), 0);
    assert_eq!(said(&exposed), 1);
    assert_eq!(said(WARNED) - said(EXPOSED), 4);
}

#[tokio::test]
async fn the_serving_certificate_is_replaced_for_connections_that_come() {
    let changing = Changing::start("", &[]).await;
    let own = changing.proxy.root().unwrap().credential;
    changing.until(&own, true).await;
    let before = changing.client(own.clone(), None);
    changing.until_client(&before, true).await;
    let serving = |issuer: &Issuer| {
        signed(
            issuer,
            &CertificateParams::new(["127.0.0.1".to_owned()]).unwrap(),
        )
    };
    let [one, other] = [authority("one"), authority("other")];
    let put = |issuer: &Issuer| {
        let (certificate, key) = serving(issuer);
        changing.write("tls.crt", &certificate);
        changing.write("tls.key", &key);
    };
    let served = async |issuer: &Issuer| {
        let pem = issuer.pem();
        wait_for("the certificate to be served", PATIENCE, async || {
            changing
                .client(own.clone(), Some(&pem))
                .get(PATH)
                .await?
                .ok()
        })
        .await
        .unwrap();
    };
    put(&one);
    changing.configure("tls: { certFile: tls.crt, keyFile: tls.key }");
    served(&one).await;
    put(&other);
    served(&other).await;
    // Only the half of a pair, as a look may have found them before, too.
    let said = changing.proxy.log().matches(HALF).count();
    changing.write("tls.key", &KeyPair::generate().unwrap().serialize_pem());
    changing.logged(said + 1, HALF).await;
    served(&other).await;
    let answer = before.get(PATH).await.unwrap();
    assert_eq!(answer.status, 200, "what is open goes on");
    changing.configure("");
    let again = changing.client(own.clone(), None);
    changing.until_client(&again, true).await;
}

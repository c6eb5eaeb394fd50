//! A copy of `deploy/`, with the files that whoever deploys it makes.

use std::path::{Path, PathBuf};

use fleetcache_e2e::kubeconfig::{Context, Credential};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

/// The root of the repository.
pub(super) fn repository() -> PathBuf {
    let e2e = Path::new(env!("CARGO_MANIFEST_DIR"));
    e2e.parent().unwrap().to_owned()
}

/// The copy.
pub(super) struct Files {
    dir: TempDir,
    /// Who signs the serving certificate.
    pub(super) ca_pem: String,
    /// A client certificate of user `carol`.
    pub(super) carol: Credential,
}

impl Files {
    /// With a kubeconfig of the one cluster `prod`.
    pub(super) fn new(prod: &Context) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy(&repository().join("deploy"), dir.path());
        let (servers, clients) = (authority("servers"), authority("clients"));
        let names = ["fleetcache.fleetcache.svc", "localhost", "127.0.0.1"];
        let mut serving = CertificateParams::new(names.map(str::to_owned)).unwrap();
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (cert_pem, key_pem) = signed(&serving, &servers);
        let mut carol = CertificateParams::default();
        carol.distinguished_name.push(DnType::CommonName, "carol");
        carol.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (carols, carols_key) = signed(&carol, &clients);
        let files = Self {
            dir,
            ca_pem: servers.pem(),
            carol: Credential::Certificate {
                cert_pem: carols,
                key_pem: carols_key,
            },
        };
        for (name, text) in [
            ("tls.crt", cert_pem.as_str()),
            ("tls.key", &key_pem),
            ("clients.crt", &clients.pem()),
            ("tokens.csv", "alices,alice,2,developers\nbobs,bob,3\n"),
        ] {
            files.write(&format!("secrets/{name}"), text);
        }
        let kubeconfig = files.path("secrets/prod.kubeconfig");
        fleetcache_e2e::kubeconfig::write(&kubeconfig, std::slice::from_ref(prod)).unwrap();
        files
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Copies what git would, more or less: whoever deploys from this checkout has keys beside the manifests.
pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn signed(params: &CertificateParams, by: &Issuer) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    (certificate.pem(), key.serialize_pem())
}

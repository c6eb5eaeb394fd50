//! The keys and certificates of one control plane, made anew each time.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::kubeconfig::Credential;

/// One CA that signs the server's certificate and those of its clients, as kubeadm has it.
pub(super) struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    /// Makes the CA and writes what kube-apiserver and kube-controller-manager take as files.
    pub(super) fn create(dir: &Path) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let pki = Self {
            ca: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
        };
        fs::write(dir.join("ca.crt"), pki.ca.pem())?;
        fs::write(dir.join("ca.key"), pki.ca.key().serialize_pem())?;

        let names = [
            "127.0.0.1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ]
        .map(str::to_owned);
        let mut serving = CertificateParams::new(names)?;
        serving
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        pki.sign(serving)?.write(dir, "apiserver")?;
        pki.client("kube-apiserver-kubelet-client", "system:masters")?
            .write(dir, "kubelet-client")?;
        let service_accounts = KeyPair::generate()?;
        fs::write(
            dir.join("service-account.key"),
            service_accounts.serialize_pem(),
        )?;
        fs::write(
            dir.join("service-account.pub"),
            service_accounts.public_key_pem(),
        )?;
        Ok(pki)
    }

    pub(super) fn ca_pem(&self) -> String {
        self.ca.pem()
    }

    /// A client certificate for this user in this group.
    pub(super) fn client(&self, user: &str, group: &str) -> anyhow::Result<Signed> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> anyhow::Result<Signed> {
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        let key = KeyPair::generate()?;
        let cert_pem = params.signed_by(&key, &self.ca)?.pem();
        Ok(Signed {
            cert_pem,
            key_pem: key.serialize_pem(),
        })
    }
}

/// A certificate and its key.
pub(super) struct Signed {
    cert_pem: String,
    key_pem: String,
}

impl Signed {
    fn write(&self, dir: &Path, name: &str) -> anyhow::Result<()> {
        fs::write(dir.join(format!("{name}.crt")), &self.cert_pem)?;
        fs::write(dir.join(format!("{name}.key")), &self.key_pem)?;
        Ok(())
    }
}

impl From<Signed> for Credential {
    fn from(signed: Signed) -> Self {
        Self::Certificate {
            cert_pem: signed.cert_pem,
            key_pem: signed.key_pem,
        }
    }
}

//! What the files of a credential hold now, for who asks before there is a connection.

use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use super::source::bearer;
use super::{ClientCertificate, CredentialConfig};
use crate::bounded_file;
use crate::error_chain::error_chain;
use crate::secret_file::exposed;

impl CredentialConfig {
    /// Why a connect would find no credential in the files that it names: a sentence each, with the path. Plugins are not
    /// run.
    pub fn troubles(&self) -> Vec<String> {
        match self {
            Self::TokenFile(path) => token(path).err().into_iter().collect(),
            Self::ClientCertificateFiles { certificate, key } => pair(certificate, key),
            Self::Both {
                certificate,
                authorization,
            } => [certificate.troubles(), authorization.troubles()].concat(),
            Self::Anonymous
            | Self::Missing(_)
            | Self::ClientCertificate { .. }
            | Self::Token(_)
            | Self::Basic { .. }
            | Self::Exec(_) => Vec::new(),
        }
    }

    /// What is odd about it and no trouble of the proxy's: a sentence each, with the path where it lies in a file of its own.
    pub fn warnings(&self) -> Vec<String> {
        match self {
            Self::TokenFile(path) => {
                let content = read("tokenFile", path).unwrap_or_default();
                let odd = odd(String::from_utf8_lossy(&content).trim());
                let odd = odd.map(|odd| format!("tokenFile {}: {odd}", path.display()));
                odd.into_iter().chain(exposed(path)).collect()
            }
            Self::Token(token) => odd(token.expose_secret()).into_iter().collect(),
            Self::ClientCertificateFiles { key, .. } => exposed(key).into_iter().collect(),
            Self::Both {
                certificate,
                authorization,
            } => [certificate.warnings(), authorization.warnings()].concat(),
            Self::Anonymous
            | Self::Missing(_)
            | Self::ClientCertificate { .. }
            | Self::Basic { .. }
            | Self::Exec(_) => Vec::new(),
        }
    }
}

/// Of a token that can be sent.
fn odd(token: &str) -> Option<String> {
    let is_odd = |letter: char| letter.is_whitespace() || letter.is_control();
    token.contains(is_odd).then(|| {
        "there is a space or a control character in the token, and kube-apiserver reads a token up to the first space"
            .to_owned()
    })
}

fn token(path: &Path) -> Result<(), String> {
    let bytes = read("tokenFile", path)?;
    let text = String::from_utf8_lossy(&bytes);
    match text.trim() {
        "" => Err(format!("tokenFile {} is empty", path.display())),
        token => bearer(token)
            .map(drop)
            .map_err(|error| format!("tokenFile {}: {error}", path.display())),
    }
}

fn pair(certificate: &Path, key: &Path) -> Vec<String> {
    let read = [("client-certificate", certificate), ("client-key", key)]
        .map(|(field, path)| read(field, path));
    let [Ok(chain), Ok(private)] = read else {
        return read.into_iter().filter_map(Result::err).collect();
    };
    let private = SecretString::from(String::from_utf8_lossy(&private).into_owned());
    let checked = ClientCertificate::new(chain, private).check();
    let told = checked.map_err(|error| {
        let why = error
            .detail()
            .map_or_else(|| error_chain(&error), str::to_owned);
        format!("client-certificate {}: {why}", certificate.display())
    });
    told.err().into_iter().collect()
}

fn read(field: &str, path: &Path) -> Result<Vec<u8>, String> {
    bounded_file::read(path, bounded_file::SMALL)
        .map_err(|error| format!("{field} {} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_the_files_of_a_credential_lack_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let pair = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        for (name, text) in [
            ("token", "t\n"),
            ("empty", " \n"),
            ("two-lines", "a\nb"),
            ("crt", pair.cert.pem().as_str()),
            ("key", pair.signing_key.serialize_pem().as_str()),
        ] {
            std::fs::write(path(name), text).unwrap();
        }
        let token = |name: &str| CredentialConfig::TokenFile(path(name));
        let files = |certificate: &str, key: &str| CredentialConfig::ClientCertificateFiles {
            certificate: path(certificate),
            key: path(key),
        };
        let check = |config: &CredentialConfig, expected: &[&str]| {
            let told = config.troubles();
            let prefix = format!("{}/", folder.path().display());
            let told: Vec<_> = told.iter().map(|it| it.replace(&prefix, "")).collect();
            assert_eq!(told, expected);
        };
        let away = "No such file or directory (os error 2)";
        check(&token("token"), &[]);
        check(
            &token("none"),
            &[&format!("tokenFile none cannot be read: {away}")],
        );
        check(&token("empty"), &["tokenFile empty is empty"]);
        check(
            &token("two-lines"),
            &["tokenFile two-lines: the credential holds characters that no header may hold"],
        );
        check(&files("crt", "key"), &[]);
        let both = [
            format!("client-certificate no.crt cannot be read: {away}"),
            format!("client-key no.key cannot be read: {away}"),
        ];
        check(&files("no.crt", "no.key"), &[&both[0], &both[1]]);
        let told = files("crt", "token").troubles();
        assert!(
            told[0].starts_with("client-certificate ") && told.len() == 1,
            "{told:?}"
        );
        let two = CredentialConfig::Both {
            certificate: Box::new(files("crt", "no.key")),
            authorization: Box::new(token("empty")),
        };
        check(&two, &[&both[1], "tokenFile empty is empty"]);
    }

    #[test]
    fn what_is_odd_about_a_credential_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let check = |config: &CredentialConfig, expected: &[&str]| {
            let told = config.warnings();
            let is_told = |(told, expected): (&String, &&str)| told.contains(*expected);
            let are_told = told.iter().zip(expected).all(is_told);
            assert!(are_told && told.len() == expected.len(), "{told:?}");
        };
        let file = |name, text, mode| CredentialConfig::TokenFile(write(name, text, mode));
        let space = "a space or a control character";
        check(&file("fine", " t\n", 0o640), &[]);
        check(&file("spaced", "Bearer t", 0o600), &[space]);
        let secret = "every user of this machine may read";
        check(&file("open", "a\tb", 0o644), &[space, secret]);
        check(&CredentialConfig::Token("t".into()), &[]);
        check(&CredentialConfig::Token("t u".into()), &[space]);
        check(
            &CredentialConfig::TokenFile(folder.path().join("none")),
            &[],
        );
        let both = CredentialConfig::Both {
            certificate: Box::new(CredentialConfig::ClientCertificateFiles {
                certificate: write("crt", "", 0o644),
                key: write("key", "", 0o644),
            }),
            authorization: Box::new(file("token", "t", 0o644)),
        };
        check(&both, &["/key", "/token"]);
    }
}

//! What the files of a credential hold now, for who asks before there is a connection.

use std::path::Path;

use secrecy::SecretString;

use super::source::bearer;
use super::{ClientCertificate, CredentialConfig};
use crate::bounded_file;
use crate::error_chain::error_chain;

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
}

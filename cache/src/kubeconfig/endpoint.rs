//! The `cluster` entry of a kubeconfig.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::config::Cluster;
use rustls::pki_types::ServerName;

use super::proxy_env::ProxyEnv;
use crate::bounded_file;
use crate::cluster_config::EndpointConfig;
use crate::upstream::tls;

/// Fields that old tools wrote and that mean nothing.
const IGNORED: &[&str] = &["api-version"];

/// Where the cluster is. None, and at least one problem more, where the entry cannot be used.
pub(super) fn endpoint(
    cluster: &Cluster,
    proxy_env: &ProxyEnv,
    problems: &mut Vec<String>,
) -> Option<EndpointConfig> {
    let before = problems.len();
    for field in cluster.other.keys() {
        if !IGNORED.contains(&field.as_str()) {
            problems.push(format!(
                "the cluster has the unknown field {field:?}; remove it or correct its name"
            ));
        }
    }
    let insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
    let certificate_authority = match certificate_authority(cluster) {
        Ok(bundle) => bundle,
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    match &certificate_authority {
        Some(_) if insecure => problems.push(
            "certificate-authority and insecure-skip-tls-verify are both set; remove one of them"
                .to_owned(),
        ),
        Some((origin, bundle)) => {
            if let Err(error) = tls::roots(bundle) {
                problems.push(format!(
                    "{origin}: {error}; set it to the CA that signs the server's certificate"
                ));
            }
        }
        None => {}
    }
    let has_tls = insecure || certificate_authority.is_some();
    let server = match server(cluster.server.as_deref().unwrap_or_default(), has_tls) {
        Ok(server) => Some(server),
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    let tls_server_name = non_empty(cluster.tls_server_name.as_deref());
    if let Some(name) = tls_server_name
        && ServerName::try_from(name).is_err()
    {
        problems.push("tls-server-name is no DNS name or IP address; correct it".to_owned());
    }
    let proxy_url = server
        .as_ref()
        .and_then(|server| proxy(cluster, server, proxy_env, problems));
    let server = server?;
    (problems.len() == before).then(|| EndpointConfig {
        server,
        certificate_authority: certificate_authority.map(|(_, bundle)| bundle),
        insecure_skip_tls_verify: insecure,
        tls_server_name: tls_server_name.map(str::to_owned),
        proxy_url,
        refuse_link_local: false,
    })
}

/// As client-go, an address without a scheme is https where something is said about TLS, else http.
fn server(text: &str, has_tls: bool) -> Result<Uri, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(
            "the cluster has no server; set it to the URL of the kube-apiserver".to_owned(),
        );
    }
    let with_scheme = match (text.contains("://"), has_tls) {
        (true, _) => text.to_owned(),
        (false, true) => format!("https://{text}"),
        (false, false) => format!("http://{text}"),
    };
    // Neither here nor below the URL is quoted: clients may be shown what is wrong, and no address.
    let wrong = || "server is not a URL like https://host:6443; correct it".to_owned();
    let uri: Uri = with_scheme.parse().map_err(|_| wrong())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(wrong());
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        return Err(
            "server holds a user name or password; move them to the user's username and password"
                .to_owned(),
        );
    }
    if uri.query().is_some() || text.contains('#') {
        return Err("server has a query or fragment; remove it".to_owned());
    }
    Ok(uri)
}

/// The bundle, and what names it in the kubeconfig.
fn certificate_authority(cluster: &Cluster) -> Result<Option<(String, Vec<u8>)>, String> {
    if let Some(data) = non_empty(cluster.certificate_authority_data.as_deref()) {
        let bundle =
            decoded(data).ok_or("certificate-authority-data is not base64; encode it anew")?;
        return Ok(Some(("certificate-authority-data".to_owned(), bundle)));
    }
    let Some(path) = non_empty(cluster.certificate_authority.as_deref()) else {
        return Ok(None);
    };
    let bundle = bounded_file::read(Path::new(path), bounded_file::SMALL).map_err(|error| {
        format!("certificate-authority {path} cannot be read: {error}; check the path and its permissions")
    })?;
    Ok(Some((format!("certificate-authority {path}"), bundle)))
}

/// `proxy-url`, else what the environment says for this server.
fn proxy(
    cluster: &Cluster,
    server: &Uri,
    proxy_env: &ProxyEnv,
    problems: &mut Vec<String>,
) -> Option<Uri> {
    let (field, url) = match non_empty(cluster.proxy_url.as_deref()) {
        Some(url) => ("proxy-url".to_owned(), url.to_owned()),
        None => proxy_env.proxy_for(server)?,
    };
    // The URL is not quoted: it may hold a password.
    match url.parse::<Uri>() {
        Ok(uri) if uri.host().is_some() => match uri.scheme_str() {
            Some("http" | "socks5" | "socks5h") => return Some(uri),
            Some("https") => problems.push(format!(
                "{field} names an https proxy, which is not supported; use an http or socks5 proxy"
            )),
            _ => problems.push(format!(
                "{field} must start with http:// or socks5://; correct it"
            )),
        },
        _ => problems.push(format!(
            "{field} must start with http:// or socks5://; correct it"
        )),
    }
    None
}

pub(super) fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// Base64 with line breaks, as Go reads it.
pub(super) fn decoded(data: &str) -> Option<Vec<u8>> {
    let data: String = data.split_ascii_whitespace().collect();
    STANDARD.decode(data).ok()
}

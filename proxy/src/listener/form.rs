//! Requests that two readers could take for different ones. They are refused before anything is made of them, with the
//! status and in the words of Go's server, hence of kube-apiserver. hyper has refused by then what is no HTTP at all.

use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, StatusCode, Version};

use super::limits::MAX_HEADER_FIELDS;
use crate::body::{Body, full};

/// The answer to such a request; over HTTP/1.1 it is the connection's last, since what follows may be a part of the request.
pub(super) fn refusal<B>(request: &Request<B>) -> Option<Response<Body>> {
    let (code, words) = fault(request)?;
    tracing::debug!(code = code.as_u16(), words, "request refused");
    let mut answer = Response::new(full(words));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, text);
    if request.version() < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(answer)
}

fn fault<B>(request: &Request<B>) -> Option<(StatusCode, &'static str)> {
    let headers = request.headers();
    // Over HTTP/1.1 hyper counts them, before they cost anything.
    if headers.len() > MAX_HEADER_FIELDS {
        let code = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Some((code, "431 Request Header Fields Too Large"));
    }
    if is_encoded(headers) {
        return Some((StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding"));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let words = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => "400 Bad Request",
        (None, _) if request.version() == Version::HTTP_11 => {
            "400 Bad Request: missing required Host header"
        }
        (Some(host), None) if !host.as_bytes().iter().all(is_of_host) => {
            "400 Bad Request: malformed Host header"
        }
        // Whoever is in front may have looked at the other one (RFC 9113, 8.3.1).
        (Some(host), None)
            if request.version() == Version::HTTP_2 && !is_authority(host, request) =>
        {
            "400 Bad Request"
        }
        _ => return None,
    };
    Some((StatusCode::BAD_REQUEST, words))
}

/// Whether the body is anything but itself in chunks. hyper looks at the last coding only, and would pass on what the others
/// have made of the body as if it were the body itself.
fn is_encoded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) => !coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => true,
    }
}

/// What Go takes in a `Host`.
fn is_of_host(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte)
}

fn is_authority<B>(host: &HeaderValue, request: &Request<B>) -> bool {
    let authority = request.uri().authority();
    authority.is_none_or(|it| host.as_bytes().eq_ignore_ascii_case(it.as_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(version: Version, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::get(uri).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let refusal = refusal(&request.body(()).unwrap());
        refusal.map_or(0, |answer| {
            let last = answer.headers().contains_key(CONNECTION);
            assert_eq!(last, version < Version::HTTP_2);
            answer.status().as_u16()
        })
    }

    #[test]
    fn a_request_is_for_one_host() {
        const ONE: Version = Version::HTTP_11;
        const TWO: Version = Version::HTTP_2;
        let host = |name| ("host", name);
        for (version, uri, headers, expected) in [
            (ONE, "/", &[host("a")][..], 0),
            (ONE, "/", &[host("[::1]:8443")], 0),
            (ONE, "/", &[host("")], 0),
            (ONE, "/", &[], 400),
            (Version::HTTP_10, "/", &[], 0),
            (ONE, "/", &[host("a"), host("a")], 400),
            (ONE, "/", &[host("a/b")], 400),
            (ONE, "/", &[host("u@b")], 400),
            (ONE, "/", &[host("a b")], 400),
            // The proxy has one name; which one the client has for it is the client's business.
            (ONE, "https://other/", &[host("a")], 0),
            (TWO, "https://a/", &[], 0),
            (TWO, "https://a/", &[host("A")], 0),
            (TWO, "https://a/", &[host("b")], 400),
            (TWO, "https://a/", &[host("a"), host("a")], 400),
            (TWO, "/", &[host("a")], 0),
        ] {
            assert_eq!(
                code(version, uri, headers),
                expected,
                "{version:?} {uri} {headers:?}"
            );
        }
    }

    #[test]
    fn a_body_comes_as_it_is() {
        let coding = |name| ("transfer-encoding", name);
        for (codings, expected) in [
            (&[coding("chunked")][..], 0),
            (&[coding("Chunked")], 0),
            (&[coding("gzip, chunked")], 501),
            (&[coding("chunked, chunked")], 501),
            (&[coding("gzip"), coding("chunked")], 501),
            (&[coding("chunked"), coding("chunked")], 501),
        ] {
            let headers = [&[("host", "a")], codings].concat();
            assert_eq!(
                code(Version::HTTP_11, "/", &headers),
                expected,
                "{codings:?}"
            );
        }
    }

    #[test]
    fn fields_are_counted() {
        let many = vec![("a", "b"); MAX_HEADER_FIELDS];
        assert_eq!(code(Version::HTTP_2, "https://a/", &many), 0);
        let more = vec![("a", "b"); MAX_HEADER_FIELDS + 1];
        assert_eq!(code(Version::HTTP_2, "https://a/", &more), 431);
    }
}

//! Requests that can be read in more than one way, in the same bytes to a real server and to the proxy in front of it.

use fleetcache_e2e::control_plane::User;
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::raw::Raw;

use crate::pair::Pair;

/// What is sent, with `$P` for the path of the cluster and `$A` for the line of the credential; what the real server answers to
/// it and to a plain request behind it on the same connection; and what the proxy answers, where that is something else. Where
/// the last answer is missing, the connection ended, or the plain request was read as a part of the first.
type Case = (
    &'static str,
    &'static [u8],
    &'static [u16],
    Option<&'static [u16]>,
);

/// A request that is wrong in form has a 400 or 501 and is its connection's last, at both. The proxy differs where its HTTP library
/// is stricter (obsolete folds, HTTP/1.2), has another code, or drops what nobody may rely on (a length beside chunks, after
/// which the connection ends; the fragment of a path).
#[rustfmt::skip]
const CASES: &[Case] = &[
    ("plain", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[200, 200], None),
    ("no host", b"GET $P/version HTTP/1.1\r\n$A\r\n", &[400], None),
    ("no host 1.0", b"GET $P/version HTTP/1.0\r\nConnection: keep-alive\r\n$A\r\n", &[200, 200], None),
    ("two hosts", b"GET $P/version HTTP/1.1\r\nHost: a\r\nHost: b\r\n$A\r\n", &[400], None),
    ("two equal hosts", b"GET $P/version HTTP/1.1\r\nHost: a\r\nHost: a\r\n$A\r\n", &[400], None),
    ("bad host", b"GET $P/version HTTP/1.1\r\nHost: a b\r\n$A\r\n", &[400], None),
    ("host with a slash", b"GET $P/version HTTP/1.1\r\nHost: a/b\r\n$A\r\n", &[400], None),
    ("host with a comma", b"GET $P/version HTTP/1.1\r\nHost: a,b\r\n$A\r\n", &[200, 200], None),
    ("host userinfo", b"GET $P/version HTTP/1.1\r\nHost: u@b\r\n$A\r\n", &[400], None),
    ("empty host", b"GET $P/version HTTP/1.1\r\nHost: \r\n$A\r\n", &[200, 200], None),
    ("non-ascii host", b"GET $P/version HTTP/1.1\r\nHost: \xff\r\n$A\r\n", &[400], None),
    ("absolute form", b"GET https://other$P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[200, 200], None),
    ("absolute form, userinfo", b"GET https://u:p@other$P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[200, 200], None),
    ("absolute form http", b"GET http://other$P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[200, 200], None),
    ("absolute form ftp", b"GET ftp://other$P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[200, 200], None),
    ("absolute form no path", b"GET https://other HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("absolute form no host", b"GET https://$P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[200, 200], Some(&[400])),
    ("scheme-relative", b"GET //other$P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("authority form", b"GET other:443 HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("no slash", b"GET version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], Some(&[404, 200])),
    ("star", b"GET * HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("options star", b"OPTIONS * HTTP/1.1\r\nHost: a\r\n$A\r\n", &[200, 200], Some(&[404, 200])),
    ("connect", b"CONNECT other:443 HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("connect path", b"CONNECT $P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[405, 200], None),
    ("cl te", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[200, 200], Some(&[200])),
    ("te cl", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", &[200, 200], Some(&[200])),
    ("te bad cl", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\nContent-Length: x\r\n\r\n0\r\n\r\n", &[400], Some(&[200])),
    ("two cl differ", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", &[400], None),
    ("two cl equal", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", &[200, 200], None),
    ("cl list", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: 2, 2\r\n\r\nab", &[400], None),
    ("cl plus", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: +2\r\n\r\nab", &[400], None),
    ("cl minus", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: -2\r\n\r\nab", &[400], None),
    ("cl empty", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: \r\n\r\n", &[400], None),
    ("cl huge", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: 99999999999999999999\r\n\r\n", &[400], None),
    ("cl zeros", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: 0002\r\n\r\nab", &[200, 200], None),
    ("cl hex", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: 0x2\r\n\r\nab", &[400], None),
    ("te gzip", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: gzip\r\n\r\n", &[501], Some(&[400])),
    ("te identity", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: identity\r\n\r\n", &[501], Some(&[400])),
    ("te gzip, chunked", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", &[501], None),
    ("te two lines", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[501], None),
    ("te chunked twice", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[501], None),
    ("te chunked, chunked", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", &[501], None),
    ("te chunked, identity", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", &[501], Some(&[400])),
    ("te case", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", &[200, 200], None),
    ("te xchunked", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", &[501], Some(&[400])),
    ("te empty", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: \r\n\r\n", &[501], Some(&[400])),
    ("te vt", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", &[400], None),
    ("te quoted", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", &[501], Some(&[400])),
    ("te 1.0", b"GET $P/version HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n$ATransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[200, 400], Some(&[400])),
    ("te name with underscore", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer_Encoding: chunked\r\n\r\n", &[200, 200], None),
    ("chunk ext", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\n2;a=b\r\nab\r\n0\r\n\r\n", &[200, 200], None),
    ("chunk size big", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", &[200], None),
    ("chunk size 0x", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n", &[200], None),
    ("chunk size minus", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n", &[200], None),
    ("chunk size space", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n0\r\n\r\n", &[200, 200], None),
    ("chunk size leading space", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\n 2\r\nab\r\n0\r\n\r\n", &[200], None),
    ("chunk bare lf", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\n2\nab\n0\n\n", &[200], None),
    ("chunk without crlf after", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\n2\r\nabX0\r\n\r\n", &[200], None),
    ("chunk ext lf", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\n\r\n2;\nab\r\n0\r\n\r\n", &[200], None),
    ("trailers", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n0\r\nX-A: b\r\n\r\n", &[200, 200], None),
    ("trailer impersonation", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\nTrailer: Impersonate-User\r\n\r\n0\r\nImpersonate-User: b\r\n\r\n", &[200, 200], None),
    ("trailer host", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\nTrailer: Host\r\n\r\n0\r\nHost: b\r\n\r\n", &[200, 200], None),
    ("trailer content-length", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$ATransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n", &[400], Some(&[200, 200])),
    ("obs-fold", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-A: b\r\n c\r\n\r\n", &[200, 200], Some(&[400])),
    ("obs-fold first", b"GET $P/version HTTP/1.1\r\n Host: a\r\n$A\r\n", &[400], None),
    ("bare cr in value", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-A: b\rc\r\n\r\n", &[400], None),
    ("bare lf ends", b"GET $P/version HTTP/1.1\nHost: a\n$A\n", &[200, 200], None),
    ("bare lf one", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-A: b\n\r\n", &[200, 200], None),
    ("nul in value", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-A: b\0c\r\n\r\n", &[400], None),
    ("nul in name", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX\0A: b\r\n\r\n", &[400], None),
    ("nul in path", b"GET $P/version\0 HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], None),
    ("space before colon", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-A : b\r\n\r\n", &[400], None),
    ("tab before colon", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-A\t: b\r\n\r\n", &[400], None),
    ("no colon", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-A\r\n\r\n", &[400], None),
    ("empty name", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$A: b\r\n\r\n", &[400], None),
    ("name with unicode", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-\xc3\xa9: b\r\n\r\n", &[400], None),
    ("value with high bytes", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AX-A: \xff\r\n\r\n", &[200, 200], None),
    ("space in path", b"GET $P/ver sion HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], None),
    ("two spaces", b"GET  $P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], None),
    ("leading empty line", b"\r\nGET $P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], Some(&[200, 200])),
    ("leading space", b" GET $P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], None),
    ("http 0.9", b"GET $P/version\r\n\r\n", &[400], None),
    ("http 1.2", b"GET $P/version HTTP/1.2\r\nHost: a\r\n$A\r\n", &[200, 200], Some(&[400])),
    ("http 2.0", b"GET $P/version HTTP/2.0\r\nHost: a\r\n$A\r\n", &[505], Some(&[400])),
    ("http 3", b"GET $P/version HTTP/3\r\nHost: a\r\n$A\r\n", &[400], None),
    ("http lower", b"GET $P/version http/1.1\r\nHost: a\r\n$A\r\n", &[400], None),
    ("h2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[403], Some(&[])),
    ("method lower", b"get $P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[405, 200], None),
    ("method odd", b"G,T $P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], None),
    ("method unknown", b"FROB $P/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[405, 200], None),
    ("fragment", b"GET $P/version#x HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], Some(&[200, 200])),
    ("non-utf8 path", b"GET $P/version/\xff HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], Some(&[400])),
    ("utf8 path", b"GET $P/version/\xc3\xa9 HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("bad escape", b"GET $P/version/%zz HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], Some(&[400, 200])),
    ("escaped nul", b"GET $P/version/%00 HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("dots", b"GET $P/api/../version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("dots out", b"GET $P/../version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("dot", b"GET $P/./version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("double slash", b"GET $P//version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("escaped dots", b"GET $P/api/%2e%2e/version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("escaped slash", b"GET $P%2fversion HTTP/1.1\r\nHost: a\r\n$A\r\n", &[400], Some(&[404, 200])),
    ("semicolon", b"GET $P/version;a=b HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("backslash", b"GET $P/api\\..\\version HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("caret", b"GET $P/version/^ HTTP/1.1\r\nHost: a\r\n$A\r\n", &[404, 200], None),
    ("hop authorization", b"GET $P/api/v1/namespaces HTTP/1.1\r\nHost: a\r\n$AConnection: authorization\r\n\r\n", &[200, 200], None),
    ("two authorizations", b"GET $P/api/v1/namespaces HTTP/1.1\r\nHost: a\r\n$A$A\r\n", &[200, 200], Some(&[401, 200])),
    ("upgrade h2c", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", &[200, 200], None),
    ("upgrade unknown", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AConnection: Upgrade\r\nUpgrade: frob\r\n\r\n", &[200, 200], None),
    ("upgrade websocket", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", &[200, 200], None),
    ("expect other", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AExpect: frob\r\n\r\n", &[417], Some(&[417, 200])),
    ("expect", b"POST $P/api/v1/namespaces HTTP/1.1\r\nHost: a\r\n$AExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", &[100, 422, 200], None),
    ("body on get", b"GET $P/version HTTP/1.1\r\nHost: a\r\n$AContent-Length: 2\r\n\r\nab", &[200, 200], None),
];

/// A plain request, whose answer shows where the one before it ended.
const PLAIN: &[u8] = b"GET $P/version HTTP/1.1\r\nHost: plain\r\n$AConnection: close\r\n\r\n";

fn bytes(template: &[u8], endpoint: &Context) -> Vec<u8> {
    let path = endpoint.server.splitn(4, '/').nth(3);
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    let Credential::Token(token) = &endpoint.credential else {
        panic!("no token");
    };
    let credential = format!("Authorization: Bearer {token}\r\n");
    let all = [template, PLAIN].concat();
    let mut parts = all.split(|byte| *byte == b'$');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        match part[0] {
            b'P' => bytes.extend(path.bytes()),
            _ => bytes.extend(credential.bytes()),
        }
        bytes.extend(&part[1..]);
    }
    bytes
}

async fn codes(endpoint: &Context, template: &[u8]) -> Vec<u16> {
    let mut raw = Raw::connect(endpoint, "http/1.1").await.unwrap();
    raw.send(&bytes(template, endpoint)).await;
    let answers = raw.answers().await.unwrap();
    answers.iter().map(|it| it.status).collect()
}

#[tokio::test]
async fn odd_requests_are_answered_as_the_server_answers_them() {
    let pair = Pair::shared().await;
    let direct = pair.cluster.context(User::Admin).unwrap();
    let proxied = pair.proxy.context(pair.cluster.name()).unwrap();
    for (what, template, real, ours) in CASES {
        assert_eq!(codes(&direct, template).await, *real, "{what}, the server");
        let ours = ours.unwrap_or(real);
        assert_eq!(codes(&proxied, template).await, ours, "{what}, the proxy");
    }
}

//! Continue tokens as the apiserver writes them: a version and the key behind which the next page begins.
//!
//! The form is the API's own and frozen, so a token that this proxy gives is continued by any other proxy and by the
//! apiserver itself, and the other way round. Read are only tokens that would be written just so; whatever else a client sends
//! is for the server to judge.

use crate::gvr::Gvr;
use crate::resource_version::ResourceVersion;
use crate::store::key;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The only form there is.
const VERSION: &str = "meta.k8s.io/v1";

/// The version in a token that goes on with the newest state: the server gives it where a page came too late.
const NEWEST: i64 = -1;

/// Where a page begins, and of which version it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The list's version; `None` for whatever is newest.
    pub resource_version: Option<ResourceVersion>,
    /// The first key that may be in the page, relative to the namespace or to all of them, as the list is.
    pub start: String,
    /// How the start is written.
    pub style: Style,
}

/// How a server writes the start of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `/name`: a list from its watch cache.
    WatchCache,
    /// `name`: a list from etcd, and any page that came too late.
    Etcd,
}

#[derive(Deserialize, Serialize)]
struct Fields<'a> {
    v: &'a str,
    rv: i64,
    start: String,
}

impl Style {
    /// How lists of a resource are written: events are in no watch cache.
    pub fn of(gvr: &Gvr) -> Self {
        if gvr.storage() == Gvr::new("", "v1", "events").storage() {
            Self::Etcd
        } else {
            Self::WatchCache
        }
    }
}

impl ContinueToken {
    /// The token for what comes behind a key, which is relative to the namespace, or to all of them, as the list is.
    pub fn after(resource_version: ResourceVersion, last: &str, style: Style) -> Self {
        Self {
            resource_version: Some(resource_version),
            start: format!("{last}\0"),
            style,
        }
    }

    /// Reads a token; `None` where only the server can judge it.
    pub fn parse(text: &str) -> Option<Self> {
        let json = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let fields: Fields<'_> = serde_json::from_slice(&json).ok()?;
        let resource_version = match fields.rv {
            NEWEST => None,
            version => {
                let version = u64::try_from(version).ok().filter(|version| *version > 0)?;
                Some(ResourceVersion::from_number(version))
            }
        };
        let (start, style) = match fields.start.strip_prefix('/') {
            Some(start) => (start.to_owned(), Style::WatchCache),
            None => (fields.start, Style::Etcd),
        };
        let token = Self {
            resource_version,
            start,
            style,
        };
        (token.is_plain() && token.to_string() == text).then_some(token)
    }

    /// The token that goes on at the same key with the newest state, as the server gives it where a page came too late.
    #[must_use]
    pub fn at_newest(self) -> Self {
        Self {
            resource_version: None,
            style: Style::Etcd,
            ..self
        }
    }

    /// The first key of the page in the order of a LIST.
    pub fn first_key(&self, namespace: Option<&str>) -> String {
        key(namespace.unwrap_or_default(), &self.start)
    }

    /// Whether the start is the key of an object and the byte behind it: one or two names, none of which means another
    /// place in a path.
    fn is_plain(&self) -> bool {
        let Some(last) = self.start.strip_suffix('\0') else {
            return false;
        };
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        last.split('/').count() <= 2 && last.split('/').all(is_name)
    }
}

impl std::fmt::Display for ContinueToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = match self.style {
            Style::WatchCache => "/",
            Style::Etcd => "",
        };
        let fields = Fields {
            v: VERSION,
            rv: self
                .resource_version
                .map_or(NEWEST, |version| version.get().cast_signed()),
            start: format!("{slash}{}", self.start),
        };
        let json = serde_json::to_string(&fields).map_err(|_| std::fmt::Error)?;
        // As Go's encoder writes them.
        let json = json
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029");
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(json))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(json: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(json)
    }

    #[test]
    fn tokens_are_the_servers() {
        // As a kube-apiserver 1.36 wrote them: configmaps of a namespace and of all, events, a page that came too late.
        let of = |version: u64, last: &str, style| {
            let version = ResourceVersion::from_number(version);
            ContinueToken::after(version, last, style)
        };
        for (token, text) in [
            (
                of(237, "c1", Style::WatchCache),
                r#"{"v":"meta.k8s.io/v1","rv":237,"start":"/c1\u0000"}"#,
            ),
            (
                of(237, "n1/c1", Style::WatchCache),
                r#"{"v":"meta.k8s.io/v1","rv":237,"start":"/n1/c1\u0000"}"#,
            ),
            (
                of(237, "e1", Style::Etcd),
                r#"{"v":"meta.k8s.io/v1","rv":237,"start":"e1\u0000"}"#,
            ),
            (
                of(243, "e1", Style::WatchCache).at_newest(),
                r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"e1\u0000"}"#,
            ),
            (
                of(252, "a<b&c>\"\\\t\u{2028}ü", Style::WatchCache),
                r#"{"v":"meta.k8s.io/v1","rv":252,"start":"/a\u003cb\u0026c\u003e\"\\\t\u2028ü\u0000"}"#,
            ),
        ] {
            assert_eq!(token.to_string(), encode(text), "{text}");
            assert_eq!(ContinueToken::parse(&encode(text)), Some(token), "{text}");
        }
    }

    #[test]
    fn anything_else_is_the_servers_to_judge() {
        let mut odd = vec![
            "".to_owned(),
            "zzz".to_owned(),
            "e30".to_owned(),
            // Padded, and with other alphabets.
            format!(
                "{}=",
                encode(r#"{"v":"meta.k8s.io/v1","rv":12,"start":"/c\u0000"}"#)
            ),
            encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/???\u0000"}"#).replace('_', "/"),
        ];
        odd.extend(
            [
                r#"{"v":"meta.k8s.io/v2","rv":7,"start":"/a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":"/a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"/a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":07,"start":"/a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7.0,"start":"/a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"/a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":""}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"//a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a\u0000b\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a/b/c\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a/\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/../a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/./a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/..\u0000"}"#,
                r#"{"rv":7,"v":"meta.k8s.io/v1","start":"/a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a\u0000","x":1}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a\u0000","start":"/b\u0000"}"#,
                r#"{"V":"meta.k8s.io/v1","rv":7,"start":"/a\u0000"}"#,
                r#"{ "v":"meta.k8s.io/v1","rv":7,"start":"/a\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/<\u0000"}"#,
                r#"{"v":"meta.k8s.io/v1","rv":7}"#,
                r#"["meta.k8s.io/v1",7,"/a\u0000"]"#,
                "null",
            ]
            .map(encode),
        );
        for token in odd {
            assert_eq!(ContinueToken::parse(&token), None, "{token}");
        }
    }

    #[test]
    fn the_first_key_is_within_what_is_listed() {
        let token = |last| ContinueToken::after(ResourceVersion::from_number(7), last, Style::Etcd);
        assert_eq!(token("a").first_key(Some("n")), "n/a\0");
        assert_eq!(token("n/a").first_key(None), "n/a\0");
        assert_eq!(token("a").first_key(None), "a\0");
        assert_eq!(token("n/a").first_key(Some("m")), "m/n/a\0");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(version in 1..i64::MAX, last in "[^/\0]{0,9}(/[^/\0]{1,9})?", etcd in any::<bool>()) {
            prop_assume!(!last.split('/').any(|name| matches!(name, "" | "." | "..")));
            let style = if etcd { Style::Etcd } else { Style::WatchCache };
            let version = ResourceVersion::from_number(version.unsigned_abs());
            let token = ContinueToken::after(version, &last, style);
            prop_assert_eq!(ContinueToken::parse(&token.to_string()), Some(token));
        }

        #[test]
        fn no_text_breaks_it(text in any::<String>(), json in any::<String>()) {
            let _ = ContinueToken::parse(&text);
            let _ = ContinueToken::parse(&encode(&json));
        }
    }
}

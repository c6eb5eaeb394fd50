//! The apiserver's continue token: where a paged list goes on, and at which revision.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::json;

const VERSION: &str = "meta.k8s.io/v1";

/// A decoded token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContinueToken {
    /// The revision of all pages, or `None` to go on with the newest state.
    pub(super) revision: Option<u64>,
    /// The last key served, relative to the list's prefix and without the leading slash.
    pub(super) after: String,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    rv: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    start: String,
}

impl ContinueToken {
    pub(super) fn encode(&self) -> String {
        let rv = self
            .revision
            .map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let wire = Wire {
            v: VERSION.to_owned(),
            rv,
            start: format!("/{}\0", self.after),
        };
        URL_SAFE_NO_PAD.encode(json::encode(&wire))
    }

    /// `Err` holds the text that the apiserver answers with.
    pub(super) fn decode(token: &str) -> Result<Self, String> {
        let invalid =
            |why: &str| format!("invalid continue token: continue key is not valid: {why}");
        let bytes = URL_SAFE_NO_PAD
            .decode(token)
            .map_err(|error| invalid(&error.to_string()))?;
        let wire: Wire =
            serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
        if wire.v != VERSION {
            return Err(invalid("server does not recognize this encoded version"));
        }
        let revision = match wire.rv {
            0 => return Err(invalid("incorrect encoded start resourceVersion")),
            rv => u64::try_from(rv).ok(),
        };
        let start = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        if start.split('/').any(|segment| segment == "..") {
            return Err(invalid("key contains a relative path"));
        }
        Ok(Self {
            revision,
            after: start.trim_end_matches('\0').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_the_apiservers_format() {
        // Taken from a kube-apiserver 1.36.
        let real = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjM1LCJzdGFydCI6Ii9kZWZhdWx0XHUwMDAwIn0";
        let token = ContinueToken {
            revision: Some(235),
            after: "default".to_owned(),
        };
        assert_eq!(token.encode(), real);
        assert_eq!(ContinueToken::decode(real).unwrap(), token);
    }

    #[test]
    fn inconsistent_tokens_name_no_revision() {
        let token = ContinueToken {
            revision: None,
            after: "ns/name".to_owned(),
        };
        assert_eq!(ContinueToken::decode(&token.encode()).unwrap(), token);
    }

    #[test]
    fn broken_tokens_are_refused() {
        for token in ["zzz", "!", "eyJ2IjoieCIsInJ2IjoxfQ"] {
            let error = ContinueToken::decode(token).unwrap_err();
            assert!(
                error.starts_with("invalid continue token: continue key is not valid: "),
                "{error}"
            );
        }
    }
}

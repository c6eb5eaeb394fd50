//! The part of CEL that is understood: plain access to a claim.

use std::collections::BTreeMap;

use serde_json::Value;

/// Words that are values in CEL: after a dot they are no names.
const LITERALS: [&str; 4] = ["false", "in", "null", "true"];

/// Where in a token's claims a value is: `claims.a.b`, `claims["a/b"].c`.
///
/// Names after a dot are letters, digits and underscores; in brackets they are in single or double quotes, without escapes.
/// Nothing else of CEL is understood: no `has()`, no `?`, no numbers, no operators. Where the claim is not there the token
/// is refused, as kube-apiserver does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimPath {
    expression: String,
    /// At least one.
    names: Vec<String>,
}

impl ClaimPath {
    /// Reads an expression.
    ///
    /// # Errors
    /// It is anything but plain access; what is understood.
    pub(super) fn parse(expression: &str) -> Result<Self, String> {
        names(expression)
            .filter(|names| !names.is_empty())
            .map(|names| Self {
                expression: expression.to_owned(),
                names,
            })
            .ok_or_else(|| {
                format!(
                    "{expression:?} is not understood: of CEL only plain access to a claim is, claims.a.b or claims[\"a/b\"]"
                )
            })
    }

    /// Whether it is this claim, or something in it.
    pub(super) fn is(&self, claim: &str) -> bool {
        self.names[0] == claim
    }

    /// The value there.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn of<'a>(&self, claims: &'a BTreeMap<String, Value>) -> Result<&'a Value, String> {
        let mut names = self.names.iter();
        let first = names.next().and_then(|name| claims.get(name));
        let value = names.fold(first, |value, name| value?.as_object()?.get(name));
        value.ok_or_else(|| format!("there is no {}", self.expression))
    }
}

fn names(expression: &str) -> Option<Vec<String>> {
    let mut rest = expression.trim().strip_prefix("claims")?;
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix('.') {
            let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = after.find(|c| !is_letter(c)).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            let begins = name.starts_with(|c: char| !c.is_ascii_digit());
            if !begins || LITERALS.contains(&name) {
                return None;
            }
            (name, after)
        } else {
            let after = rest.strip_prefix('[')?;
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            let (name, after) = after[1..].split_once(quote)?;
            if name.contains(['\\', '\n', '\r']) {
                return None;
            }
            (name, after.strip_prefix(']')?)
        };
        // Kubernetes reads __dot__ and the like in such names as other characters.
        if name.contains("__") {
            return None;
        }
        names.push(name.to_owned());
        rest = after;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_access_is_understood_and_nothing_else() {
        let names = |text| ClaimPath::parse(text).map(|path| path.names).ok();
        let is = |text, want: &[&str]| {
            let want = want.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(names(text), Some(want), "{text}");
        };
        is("claims.sub", &["sub"]);
        is(" claims.a._b1 ", &["a", "_b1"]);
        is(r#"claims["a/b"]"#, &["a/b"]);
        is("claims['a.b'].c['d e']", &["a.b", "c", "d e"]);
        is("claims.if['in']", &["if", "in"]);
        for text in [
            "",
            "claims",
            "claim.sub",
            "claimsx.sub",
            "claims.",
            "claims.1a",
            "claims.a-b",
            "claims.in",
            "claims.?a",
            "claims.a b",
            "claims .a",
            "claims[0]",
            "claims.a[0]",
            r#"claims["a"#,
            r#"claims["a']"#,
            r#"claims["a\"]"]"#,
            "claims.a__dot__b",
            "has(claims.a)",
            "claims.a + 'x'",
            "'x' + claims.a",
            "claims.a == 'x'",
            "claims.a.startsWith('x')",
            "claims[é]",
            "user.username",
        ] {
            assert_eq!(names(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let claims = json!({"a": {"b": [1], "": 2}, "n": null, "s": "x"});
        let claims = serde_json::from_value(claims).unwrap();
        let of = |text| ClaimPath::parse(text).unwrap().of(&claims).cloned();
        assert_eq!(of("claims.a.b"), Ok(json!([1])));
        assert_eq!(of("claims.a['']"), Ok(json!(2)));
        assert_eq!(of("claims.n"), Ok(Value::Null));
        for text in [
            "claims.x",
            "claims.a.x",
            "claims.s.x",
            "claims.n.x",
            "claims.a.b.x",
        ] {
            assert_eq!(of(text), Err(format!("there is no {text}")));
        }
    }
}

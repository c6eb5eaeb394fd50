//! Who a user is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The group of everybody who was authenticated.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The user of a request without a credential, where that is allowed.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// The group of [`ANONYMOUS`].
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Who asks, in the four parts that Kubernetes knows of a user, and by whose word.
///
/// It is compared and hashed part by part, since it is a part of the keys of decisions: nothing is joined, so that a
/// group with a comma stays one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// What tells two users of one name apart over time; "" where nothing does.
    pub uid: String,
    /// Groups the user belongs to.
    pub groups: Vec<String>,
    /// What authorizers may want to know besides.
    pub extra: BTreeMap<String, Vec<String>>,
    /// The cluster whose own token it is that stands for this user, who is one of that cluster alone and nobody else of the
    /// same name; `None` where the name is the same user in all clusters.
    pub named_by: Option<Arc<str>>,
}

impl UserInfo {
    /// About its bytes in memory.
    pub fn bytes(&self) -> usize {
        let texts = |texts: &[String]| texts.iter().map(|text| 24 + text.len()).sum::<usize>();
        let extra = self.extra.iter();
        let extra = extra.map(|(key, values)| 48 + key.len() + texts(values));
        let named_by = self.named_by.as_ref().map_or(0, |it| it.len());
        self.name.len() + self.uid.len() + named_by + texts(&self.groups) + extra.sum::<usize>()
    }

    /// The one user of the generated token: `fleetcache:admin` in the groups `fleetcache:admins` and
    /// `system:authenticated`. The names are the proxy's own; no cluster knows them.
    pub fn admin() -> Self {
        Self {
            name: "fleetcache:admin".to_owned(),
            groups: vec!["fleetcache:admins".to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whoever shows no credential, where that is allowed.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whether a cluster can be told of this user in request headers, unchanged.
    ///
    /// Spaces at the ends count too: they are lost on the way, and ` system:masters` would arrive as another group
    /// than the one that was looked at here.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn check(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("the user has no name".to_owned());
        }
        travels("user name", &self.name)?;
        travels("uid", &self.uid)?;
        for group in &self.groups {
            travels("group", group)?;
        }
        for (key, values) in &self.extra {
            if key.is_empty() {
                return Err("an extra has no key".to_owned());
            }
            travels("extra key", key)?;
            for value in values {
                travels("extra value", value)?;
            }
        }
        Ok(())
    }
}

/// Whether a user or a group may be known by this name to who is no part of Kubernetes: none of its own, but those that are
/// allowed.
pub(crate) fn may_come_from_outside(name: &str, allowed: &BTreeSet<String>) -> bool {
    !name.starts_with("system:") || allowed.contains(name)
}

fn travels(what: &str, text: &str) -> Result<(), String> {
    if text.chars().any(char::is_control) {
        return Err(format!("{what} {text:?} has a control character"));
    }
    if text.trim() != text {
        return Err(format!("{what} {text:?} begins or ends with a space"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn user(name: &str, uid: &str, groups: &[&str], extra: &[(&str, &[&str])]) -> UserInfo {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        UserInfo {
            name: name.to_owned(),
            uid: uid.to_owned(),
            groups: owned(groups),
            extra: extra
                .iter()
                .map(|(key, values)| ((*key).to_owned(), owned(values)))
                .collect(),
            named_by: None,
        }
    }

    #[test]
    fn users_whose_parts_read_alike_in_a_row_differ() {
        let users = [
            user("a", "b", &[], &[]),
            user("ab", "", &[], &[]),
            user("a", "", &["b"], &[]),
            user("a", "", &["b", ""], &[]),
            user("a", "", &[], &[("b", &[])]),
            user("a", "", &["b,c"], &[]),
            user("a", "", &["b", "c"], &[]),
            user("a", "", &["c", "b"], &[]),
            user("a", "", &["bc"], &[]),
            user("a", "", &[], &[("b", &["c"])]),
            user("a", "", &[], &[("bc", &[""])]),
            user("a", "", &[], &[("b", &["c", "d"])]),
            user("a", "", &[], &[("b", &["cd"])]),
            user("a", "", &[], &[("b", &["c"]), ("d", &[])]),
            user("A", "b", &[], &[]),
            UserInfo {
                named_by: Some("b".into()),
                ..user("a", "", &[], &[])
            },
        ];
        let distinct: HashSet<_> = users.iter().collect();
        assert_eq!(distinct.len(), users.len());
    }

    #[test]
    fn only_who_can_travel_in_headers_is_a_user() {
        let check = |user: UserInfo, expected: Option<&str>| {
            assert_eq!(user.check().err().as_deref(), expected, "{user:?}");
        };
        check(user("jörg, 東京", "1", &["a,b", "ü", ""], &[]), None);
        check(user("a b", "", &[], &[("example.com/k", &["v", ""])]), None);
        check(user("", "1", &[], &[]), Some("the user has no name"));
        check(
            user("a\nb", "", &[], &[]),
            Some(r#"user name "a\nb" has a control character"#),
        );
        check(
            user("a", "\u{7f}", &[], &[]),
            Some(r#"uid "\u{7f}" has a control character"#),
        );
        check(
            user("a", "", &["b", "c\0"], &[]),
            Some(r#"group "c\0" has a control character"#),
        );
        check(
            user("a", "", &["b", " system:masters"], &[]),
            Some(r#"group " system:masters" begins or ends with a space"#),
        );
        check(
            user("a ", "", &[], &[]),
            Some(r#"user name "a " begins or ends with a space"#),
        );
        check(
            user("a", "", &[], &[("k\r", &[])]),
            Some(r#"extra key "k\r" has a control character"#),
        );
        check(
            user("a", "", &[], &[("", &[])]),
            Some("an extra has no key"),
        );
        check(
            user("a", "", &[], &[("k", &["v", "\t"])]),
            Some(r#"extra value "\t" has a control character"#),
        );
    }
}

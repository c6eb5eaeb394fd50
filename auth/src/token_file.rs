//! Static tokens, in kube-apiserver's file: one line a token, `token,user,uid,"group1,group2"`.

mod csv;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::user::{AUTHENTICATED, UNAUTHENTICATED, UserInfo, may_come_from_outside};

/// Who has which token.
#[derive(Clone)]
pub struct TokenFile {
    users: Arc<Users>,
}

/// Digests are compared instead of tokens: how long a look-up takes then says nothing about a token, and no token stays
/// in memory.
type Users = HashMap<[u8; 32], UserInfo>;

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// All that is wrong with it: sentences that begin with the line.
    pub fn new(content: &[u8]) -> Result<Self, Vec<String>> {
        let parsed = parse(content, &BTreeSet::new());
        match parsed.mistakes.is_empty() {
            true => Ok(Self {
                users: Arc::new(parsed.users),
            }),
            false => Err(parsed.mistakes),
        }
    }

    /// What is taken of a file, but not as whoever wrote it may think, whatever else is wrong with it: sentences that begin
    /// with the line. `allow_system_names` are the names that begin with `system:` and are taken all the same.
    pub fn warnings(content: &[u8], allow_system_names: &BTreeSet<String>) -> Vec<String> {
        parse(content, allow_system_names).warnings
    }

    /// Whose token has this digest.
    pub(crate) fn user(&self, digest: &[u8; 32]) -> Option<UserInfo> {
        self.users.get(digest).cloned()
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").finish_non_exhaustive()
    }
}

/// What a file holds.
#[derive(Default)]
struct Parsed {
    users: Users,
    mistakes: Vec<String>,
    warnings: Vec<String>,
}

fn parse(content: &[u8], allow_system_names: &BTreeSet<String>) -> Parsed {
    let mut parsed = Parsed::default();
    let warnings = &mut parsed.warnings;
    if content.starts_with("\u{feff}".as_bytes()) {
        warnings.push("line 1: the byte order mark counts as a part of the first token".to_owned());
    }
    for record in csv::records(content) {
        let read = record.and_then(|csv::Record { line, fields }| {
            let mut warn = |warning: &str| warnings.push(format!("line {line}: {warning}"));
            let user = user(&fields, &mut warn).map_err(|why| format!("line {line}: {why}"))?;
            let Some(user) = user else { return Ok(()) };
            odd_names(&user, allow_system_names, &mut warn);
            let digest = Sha256::digest(&fields[0]).into();
            if parsed.users.insert(digest, user).is_some() {
                warn("the token of an earlier line; this one counts");
            }
            Ok(())
        });
        parsed.mistakes.extend(read.err());
    }
    if parsed.users.is_empty() && parsed.mistakes.is_empty() {
        warnings.push("there is no token in it, and nobody is known by it".to_owned());
    }
    parsed
}

/// The user of a record; none where it has no token.
fn user(fields: &[Vec<u8>], warn: &mut impl FnMut(&str)) -> Result<Option<UserInfo>, String> {
    let [token, name, uid, rest @ ..] = fields else {
        let found = fields.len();
        return Err(format!(
            "at least 3 columns (token, user name, user uid) are needed, found {found}"
        ));
    };
    if token.is_empty() {
        warn("an empty token is nobody's");
        return Ok(None);
    }
    if token.iter().any(|it| *it == b' ' || it.is_ascii_control()) {
        warn(
            "a space or a control character in the token: it belongs to it, and clients cannot send such a token, or send it \
             up to the first space",
        );
    }
    if rest.len() > 1 {
        warn("columns after the fourth mean nothing; a list of groups is quoted");
    }
    let text = |what: &str, bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(format!("{what} is not UTF-8")),
    };
    let groups = match rest.first() {
        Some(groups) => text("group", groups)?
            .split(',')
            .map(str::to_owned)
            .collect(),
        None => Vec::new(),
    };
    let user = UserInfo {
        name: text("user name", name)?,
        uid: text("uid", uid)?,
        groups,
        ..UserInfo::default()
    };
    user.check()?;
    Ok(Some(user))
}

/// Names that are taken otherwise than they are written, or are seldom meant.
fn odd_names(user: &UserInfo, allowed: &BTreeSet<String>, warn: &mut impl FnMut(&str)) {
    const OWN: &str = "names that begin with \"system:\" are Kubernetes' own, and come from here only where allowSystemNames lists them";
    if !may_come_from_outside(&user.name, allowed) {
        warn(&format!(
            "nobody has this token: user {:?}: {OWN}",
            user.name
        ));
    }
    for group in &user.groups {
        if group.is_empty() {
            warn(
                "a group without a name, by a comma too many: it counts, as in kube-apiserver, and a role that lists the groups \
                 to impersonate refuses its user",
            );
        } else if group == UNAUTHENTICATED {
            warn(&format!(
                "group {group:?} is left out: it is for who has no credential"
            ));
        } else if group != AUTHENTICATED && !may_come_from_outside(group, allowed) {
            warn(&format!("group {group:?} is left out: {OWN}"));
        }
    }
}

#[cfg(test)]
mod tests;

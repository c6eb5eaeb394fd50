//! Static tokens, in kube-apiserver's file: one line a token, `token,user,uid,"group1,group2"`.

mod csv;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};

use crate::user::UserInfo;

/// Who has which token. Clones are one file: what replaces it in one replaces it in all.
#[derive(Clone)]
pub struct TokenFile {
    users: Arc<ArcSwap<Users>>,
}

/// Digests are compared instead of tokens: how long a look-up takes then says nothing about a token, and no token stays
/// in memory.
type Users = HashMap<[u8; 32], UserInfo>;

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, in which line.
    pub fn new(content: &[u8]) -> Result<Self, String> {
        let users = Arc::new(ArcSwap::from_pointee(read(content)?));
        Ok(Self { users })
    }

    /// Reads a file that replaces this one.
    ///
    /// # Errors
    /// What is wrong with it, in which line; then nothing is replaced.
    pub fn replace(&self, content: &[u8]) -> Result<(), String> {
        self.users.store(Arc::new(read(content)?));
        Ok(())
    }

    /// Whose token has this digest.
    pub(crate) fn user(&self, digest: &[u8; 32]) -> Option<UserInfo> {
        self.users.load().get(digest).cloned()
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").finish_non_exhaustive()
    }
}

fn read(content: &[u8]) -> Result<Users, String> {
    let (users, warnings) = parse(content)?;
    for warning in warnings {
        tracing::warn!(
            warning,
            "odd line of the token file, taken as kube-apiserver takes it"
        );
    }
    Ok(users)
}

/// The users of a file, and what in it is odd but taken, as kube-apiserver takes it.
fn parse(content: &[u8]) -> Result<(Users, Vec<String>), String> {
    let mut users = Users::new();
    let mut warnings = Vec::new();
    if content.starts_with("\u{feff}".as_bytes()) {
        warnings.push("line 1: the byte order mark counts as a part of the first token".to_owned());
    }
    for record in csv::records(content) {
        let csv::Record { line, fields } = record?;
        let [token, name, uid, rest @ ..] = &fields[..] else {
            let found = fields.len();
            return Err(format!(
                "line {line}: at least 3 columns (token, user name, user uid) are needed, found {found}"
            ));
        };
        if token.is_empty() {
            warnings.push(format!("line {line}: an empty token is nobody's"));
            continue;
        }
        if rest.len() > 1 {
            warnings.push(format!(
                "line {line}: columns after the fourth mean nothing; a list of groups is quoted"
            ));
        }
        let text = |what: &str, bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(format!("line {line}: {what} is not UTF-8")),
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
        user.check().map_err(|why| format!("line {line}: {why}"))?;
        if users.insert(Sha256::digest(token).into(), user).is_some() {
            warnings.push(format!(
                "line {line}: the token of an earlier line; this one counts"
            ));
        }
    }
    Ok((users, warnings))
}

#[cfg(test)]
mod tests;

//! What a token says, once its signature is known to be good: is it for us, is it now, and who is it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Number, Value};

use super::configuration::{IssuerConfig, Mapping};
use crate::fault::{Fault, FaultSort};
use crate::token_user::TokenUser;
use crate::user::UserInfo;

/// How far the issuer's clock may be ahead of ours where a token says from when it is good. An end has no leeway. Both as
/// kube-apiserver has it.
const NOT_BEFORE_LEEWAY: Duration = Duration::from_secs(60);

/// Which token it was, for audit logs of clusters.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The claims of a token. A name that is there twice makes it no token: who reads the first and who reads the last would
/// see two users in it.
pub(super) struct Claims(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ClaimsVisitor).map(Self)
    }
}

struct ClaimsVisitor;

impl<'de> Visitor<'de> for ClaimsVisitor {
    type Value = BTreeMap<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of claims")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut claims = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            if let Some(twice) = claims.insert(name, value) {
                drop(twice);
                return Err(A::Error::custom("a claim is there twice"));
            }
        }
        Ok(claims)
    }
}

impl Claims {
    /// The user, where all that the configuration asks for holds at `now`.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn user(self, config: &IssuerConfig, now: SystemTime) -> Result<TokenUser, Fault> {
        let issuer = self.text("iss")?;
        if issuer != config.url {
            return Err(format!("iss is {issuer:?}, not {:?}", config.url).into());
        }
        let audiences = texts(self.get("aud")?)
            .ok_or_else(|| "aud is neither a string nor a list of them".to_owned())?;
        if !audiences.iter().any(|it| config.audiences.contains(it)) {
            let why = format!("aud is {audiences:?}, none of {:?}", config.audiences);
            return Err(FaultSort::Audience.because(why));
        }
        let expires = self
            .time("exp")?
            .ok_or_else(|| "there is no exp".to_owned())?;
        if expires < now {
            return Err(FaultSort::Time.because("it has expired"));
        }
        if let Some(not_before) = self.time("nbf")?
            && now + NOT_BEFORE_LEEWAY < not_before
        {
            return Err(FaultSort::Time.because("its nbf is in the future"));
        }
        // When it was issued says nothing about its user, but it says so in numbers.
        self.time("iat")?;
        for (claim, value) in &config.required {
            if self.text(claim)? != value {
                return Err(format!("claim {claim:?} is not {value:?}").into());
            }
        }
        let groups = match &config.groups {
            Some(mapping) => self.groups(mapping)?,
            None => Vec::new(),
        };
        let user = UserInfo {
            name: self.name(&config.username)?,
            uid: self.uid(config.uid.as_ref())?,
            groups,
            extra: self.extra(&config.extra)?,
            named_by: None,
        };
        let expires = Some(expires);
        Ok(TokenUser {
            user,
            expires,
            known_until: None,
        })
    }

    fn name(&self, mapping: &Mapping) -> Result<String, String> {
        let (is_email, prefix, name) = match mapping {
            Mapping::Claim { claim, prefix } => {
                (claim == "email", prefix.as_str(), self.text(claim)?)
            }
            Mapping::Path(path) => {
                let name = path.of(&self.0)?.as_str();
                (
                    path.is("email"),
                    "",
                    name.ok_or("the user's name is not a string")?,
                )
            }
        };
        if is_email && !matches!(self.0.get("email_verified"), None | Some(Value::Bool(true))) {
            return Err("the email address is not verified".to_owned());
        }
        // Stricter than kube-apiserver, to which a user may have no name.
        if name.is_empty() {
            return Err("the user's name is empty".to_owned());
        }
        Ok(format!("{prefix}{name}"))
    }

    fn groups(&self, mapping: &Mapping) -> Result<Vec<String>, String> {
        let wrong = || "the groups are neither a string nor a list of them".to_owned();
        match mapping {
            Mapping::Claim { claim, prefix } => {
                let value = match self.0.get(claim) {
                    Some(value) => value,
                    // kube-apiserver would ask another server for them. Without them a user may be less than they are,
                    // which would look like a mistake in their roles.
                    None if self.is_elsewhere(claim)? => {
                        return Err(format!(
                            "claim {claim:?} is to be had elsewhere (_claim_names), which is not supported: let the \
                             issuer put it into the token"
                        ));
                    }
                    None => &Value::Null,
                };
                let groups = match value {
                    Value::Null => Vec::new(),
                    value => texts(value).ok_or_else(wrong)?,
                };
                Ok(groups.iter().map(|it| format!("{prefix}{it}")).collect())
            }
            Mapping::Path(path) => values(path.of(&self.0)?).ok_or_else(wrong),
        }
    }

    fn uid(&self, mapping: Option<&Mapping>) -> Result<String, String> {
        match mapping {
            None => Ok(String::new()),
            Some(Mapping::Claim { claim, .. }) => self.text(claim).map(str::to_owned),
            Some(Mapping::Path(path)) => {
                let uid = path.of(&self.0)?.as_str();
                uid.map(str::to_owned)
                    .ok_or_else(|| "the uid is not a string".to_owned())
            }
        }
    }

    fn extra(
        &self,
        mappings: &[(String, super::claim_path::ClaimPath)],
    ) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        if let Some(Value::String(id)) = self.0.get("jti")
            && !id.is_empty()
        {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, path) in mappings {
            let values = values(path.of(&self.0)?)
                .ok_or_else(|| format!("{key} is neither a string nor a list of them"))?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }

    /// Whether a claim is "distributed": in another token, which a server has that this one names.
    fn is_elsewhere(&self, claim: &str) -> Result<bool, String> {
        match self.0.get("_claim_names") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Object(names)) => Ok(names.contains_key(claim)),
            Some(_) => Err("_claim_names is not a mapping".to_owned()),
        }
    }

    fn get(&self, claim: &str) -> Result<&Value, String> {
        let value = self.0.get(claim);
        value.ok_or_else(|| format!("there is no claim {claim:?}"))
    }

    fn text(&self, claim: &str) -> Result<&str, String> {
        let text = self.get(claim)?.as_str();
        text.ok_or_else(|| format!("claim {claim:?} is not a string"))
    }

    /// A number of seconds since 1970, or one in quotes, as kube-apiserver has it; what is less than a second does not count.
    fn time(&self, claim: &str) -> Result<Option<SystemTime>, String> {
        let number = match self.0.get(claim) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => Some(number.clone()),
            Some(Value::String(text)) => text.parse().ok(),
            Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
        };
        let seconds = number.and_then(|number: Number| {
            let whole = number.as_u64().map(Duration::from_secs);
            let part = || Duration::try_from_secs_f64(number.as_f64()?.trunc()).ok();
            whole.or_else(part)
        });
        let time = seconds.and_then(|it| UNIX_EPOCH.checked_add(it));
        time.map(Some)
            .ok_or_else(|| format!("claim {claim:?} is no time"))
    }
}

/// A string, or a list of nothing else.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// What an expression gives: as [`texts`], where nothing and what is empty are no values.
fn values(value: &Value) -> Option<Vec<String>> {
    if value.is_null() {
        return Some(Vec::new());
    }
    let mut values = texts(value)?;
    values.retain(|value| !value.is_empty());
    Some(values)
}

#[cfg(test)]
mod tests;

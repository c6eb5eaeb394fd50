//! An OpenID Connect issuer: publishes its keys over HTTPS with a CA of its own, and signs whatever it is asked to.
//!
//! It serves any number of issuers at once: each path under its URL is one, with the same keys.

mod server;
mod signing_key;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::sim::Authority;
use server::Published;
use signing_key::SigningKey;
pub use signing_key::{Algorithm, hmac_token, unsigned};

/// A running issuer; gone when dropped.
pub struct OidcIssuer {
    authority: Authority,
    url: String,
    published: Arc<Published>,
    current: Mutex<Arc<SigningKey>>,
    _stop: DropGuard,
}

/// What becomes of the old key when there is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldKey {
    /// It stays published.
    Kept,
    /// It is taken back.
    Dropped,
    /// It is taken back, and the new key has its name.
    Replaced,
}

/// How the issuer's server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    Up,
    /// It answers 503.
    Down,
    /// It reads requests and answers when it is up again.
    Slow,
}

/// How often it was asked, for all issuers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// For a discovery document.
    pub discovery: usize,
    /// For the keys.
    pub keys: usize,
}

impl OidcIssuer {
    /// Starts one at a free port of 127.0.0.1, with a first key.
    pub async fn start() -> anyhow::Result<Self> {
        let authority = Authority::new("issuer")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let url = format!("https://{address}");
        let key = Arc::new(SigningKey::generate("1")?);
        let published = Arc::new(Published {
            url: url.clone(),
            keys: Mutex::new(vec![key.clone()]),
            others: Mutex::default(),
            document: Mutex::default(),
            requests: Mutex::default(),
            health: watch::Sender::new(Health::Up),
        });
        let stop = CancellationToken::new();
        let tls = authority.acceptor("issuer", address.ip())?;
        tokio::spawn(server::run(listener, tls, published.clone(), stop.clone()));
        Ok(Self {
            authority,
            url,
            published,
            current: Mutex::new(key),
            _stop: stop.drop_guard(),
        })
    }

    /// Its URL, which is also the issuer at the root.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The CA of its certificate, as PEM.
    pub fn ca_pem(&self) -> String {
        self.authority.ca_pem()
    }

    /// Claims of a token of the issuer at the root for audience `fleet`, good for an hour, with others; null takes one away.
    pub fn claims(&self, others: &Value) -> Value {
        let mut claims = json!({
            "iss": self.url, "aud": "fleet", "sub": "alice",
            "iat": unix(Duration::ZERO), "exp": unix(Duration::from_secs(3600)),
        });
        for (name, value) in others.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        if let Some(claims) = claims.as_object_mut() {
            claims.retain(|_, value| !value.is_null());
        }
        claims
    }

    /// A token with the current key, by [`Algorithm::Rs256`].
    pub fn issue(&self, claims: &Value) -> anyhow::Result<String> {
        self.issue_by(Algorithm::Rs256, claims)
    }

    /// A token with the current key.
    pub fn issue_by(&self, algorithm: Algorithm, claims: &Value) -> anyhow::Result<String> {
        let header = json!({"typ": "JWT", "alg": algorithm.name(), "kid": self.key_id()});
        self.sign(algorithm, &header, &claims.to_string())
    }

    /// Anything at all, signed with the current key by an algorithm that the header need not name.
    pub fn sign(
        &self,
        algorithm: Algorithm,
        header: &Value,
        claims: &str,
    ) -> anyhow::Result<String> {
        let key = self.current.lock().clone();
        key.token(algorithm, &header.to_string(), claims)
    }

    /// The name of the current key.
    pub fn key_id(&self) -> String {
        self.current.lock().id().to_owned()
    }

    /// The current RSA key, as PEM.
    pub fn public_key_pem(&self) -> anyhow::Result<String> {
        self.current.lock().public_key_pem()
    }

    /// Signs with a new key from now on.
    pub fn rotate(&self, old: OldKey) -> anyhow::Result<()> {
        let mut current = self.current.lock();
        let id = match old {
            OldKey::Replaced => current.id().to_owned(),
            OldKey::Kept | OldKey::Dropped => {
                let number: u32 = current.id().parse().context("keys are numbered")?;
                (number + 1).to_string()
            }
        };
        let new = Arc::new(SigningKey::generate(&id)?);
        let mut keys = self.published.keys.lock();
        if old != OldKey::Kept {
            keys.clear();
        }
        keys.push(new.clone());
        *current = new;
        Ok(())
    }

    /// Publishes other keys beside its own, as they are in a key set.
    pub fn publish(&self, others: Vec<Value>) {
        *self.published.others.lock() = others;
    }

    /// Says other things in its discovery documents.
    pub fn document(&self, others: Value) {
        *self.published.document.lock() = others;
    }

    /// How often it was asked until now.
    pub fn requests(&self) -> Requests {
        *self.published.requests.lock()
    }

    /// Lets its server answer, or not.
    pub fn set_health(&self, health: Health) {
        self.published.health.send_replace(health);
    }
}

/// The time in a while, as tokens have it.
pub fn unix(ahead: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    (now.unwrap_or_default() + ahead).as_secs()
}

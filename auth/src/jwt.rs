//! Tokens that an OpenID Connect issuer has signed → their users.

mod claim_path;
mod configuration;

pub use configuration::{AuthenticationConfiguration, Mistake};

//! Who is asking, and may they.
//!
//! This crate knows credentials and users. It never sees a cluster, a cache or a path.
//!
//! ```text
//! authenticator   the headers of a request → its user, or nobody
//! bearer_token    making a token, and finding the one a request carries
//! user            who a user is
//! ```

mod authenticator;
mod bearer_token;
mod user;

pub use authenticator::{Authenticator, Unauthenticated};
pub use bearer_token::{generate_token, strip_credentials};
pub use user::UserInfo;

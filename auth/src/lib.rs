//! Who is asking, and may they.
//!
//! This crate knows credentials and users. It never sees a cluster, a cache or a path.
//!
//! ```text
//! access_review   whether a user may: the question as a SubjectAccessReview, and what its answer decides
//! authenticator   a request's credentials → its user, or nobody
//! bearer_token    making a token, and finding the one a request carries
//! certificate     client certificates → their users
//! fault           what is wrong with a credential
//! kept_credentials  credentials that outlive their request
//! jwt             tokens that an OpenID Connect issuer has signed → their users
//! token_file      static tokens
//! token_review    tokens that another cluster judges
//! token_user      what a token says, or why it says nothing
//! user            who a user is
//! value_kind      what a value in a file is, for a mistake
//! ```

mod access_review;
mod authenticator;
mod bearer_token;
mod certificate;
mod fault;
mod jwt;
mod kept_credentials;
mod token_file;
mod token_review;
mod token_user;
mod user;
mod value_kind;

pub use access_review::{
    Decision, NonResourceAttributes, Question, ResourceAttributes, broader, decision,
    selected_name, subject_access_review,
};
pub use authenticator::{
    Authenticated, AuthenticationError, Authenticator, Credentials, Method, Methods, Refusal,
};
pub use bearer_token::{bearer_tokens, generate_token};
pub use certificate::{ClientCertificates, accept_any};
pub use fault::{Fault, FaultSort};
pub use jwt::{AuthenticationConfiguration, JwtAuthenticator, KeyTiming, Mistake};
pub use kept_credentials::KeptCredentials;
pub use token_file::TokenFile;
pub use token_review::{
    NotReviewed, ReviewTokens, reviewed, token_review, unverified_expiry, unverified_issuer,
};
pub use token_user::{TokenError, TokenUser, Unavailable};
pub use user::{AUTHENTICATED, UserInfo};
pub use value_kind::value_kind;

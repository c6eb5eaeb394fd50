//! Who is asking, and may they.
//!
//! This crate knows credentials and users. It never sees a cluster, a cache or a path.
//!
//! ```text
//! access_review   whether a user may: the question as a SubjectAccessReview, and what its answer decides
//! authenticator   the headers of a request → its user, or nobody
//! bearer_token    making a token, and finding the one a request carries
//! user            who a user is
//! ```

mod access_review;
mod authenticator;
mod bearer_token;
mod user;

pub use access_review::{
    Decision, NonResourceAttributes, Question, ResourceAttributes, broader, decision,
    selected_name, subject_access_review,
};
pub use authenticator::{Authenticator, Unauthenticated};
pub use bearer_token::generate_token;
pub use user::UserInfo;

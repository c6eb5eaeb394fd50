//! From the proxy's own errors to `metav1.Status`: the only mapping.

use http::Response;

use crate::body::Body;
use crate::error::Error;

/// The answer for an error: a JSON Status in the apiserver's own words and key order.
pub fn response(_error: &Error) -> Response<Body> {
    unimplemented!("skeleton")
}

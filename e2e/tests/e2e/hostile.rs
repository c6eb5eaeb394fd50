//! Whoever means harm: requests that are no requests, or that mean another thing to another reader; requests of nobody, of
//! any kind; connections that take what they can get; and who listens to the log for a credential.

mod alike;
mod connections;
mod forwarded;
mod fuzz;
mod secrets;

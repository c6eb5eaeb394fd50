//! (in progress)

pub mod sim;

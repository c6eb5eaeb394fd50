//! (in progress)

pub mod fault;
pub mod sim;

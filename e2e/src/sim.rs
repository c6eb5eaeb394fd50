//! A simulated cluster (in progress)
mod continue_token;
mod defaults;
mod history;
mod json;
mod lifecycle;
mod object;
mod query;
mod resource;
mod selector;
mod status;
mod store;

//! The acceptance scenarios of one cluster's life among a thousand: unreachable, lost, back, removed, restarted, and what
//! others notice of it (nothing). `docs/TESTING.md` tells which test proves which scenario.

mod bed;
mod black_holes;
mod controllers;
mod credentials;
mod crowd;
mod dns;
mod first_list;
mod loss;
mod memory;
mod names;
mod rights;
mod start;
mod stopped;

//! The end-to-end tests: one binary, so that one control plane serves them all. `docs/TESTING.md` says what each module proves.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop, and say where"
)]

mod control_plane;
mod kubectl;
mod never_the_past;
mod pair;
mod reads;
mod transcript;

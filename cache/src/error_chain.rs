//! Errors in one line of a log.

use std::error::Error;

/// An error and its sources. No Display in this crate repeats its source, but those of others do.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let next = source.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = source.source();
    }
    text
}

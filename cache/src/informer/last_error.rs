//! What went wrong last between an informer and its server, for who looks at its state.

use std::time::SystemTime;

use super::Informer;

/// The longest message that is kept, in bytes: a server may say anything.
const LONGEST: usize = 256;

/// A failure that another try may mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// In words for people: no address, no credential.
    pub message: String,
    /// When it happened.
    pub at: SystemTime,
}

impl Informer {
    /// Its reflector failed.
    pub(crate) fn failed(&self, mut message: String) {
        message.truncate(message.floor_char_boundary(LONGEST));
        let at = SystemTime::now();
        *self.last_error.lock() = Some(LastError { message, at });
    }

    /// What went wrong last.
    pub fn last_error(&self) -> Option<LastError> {
        self.last_error.lock().clone()
    }
}

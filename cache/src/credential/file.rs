//! Files that somebody else writes, at any moment and in any way.

use std::path::Path;
use std::time::Duration;

use super::CredentialError;
use super::reads::READS;

/// The pause between two looks at a file that has just changed.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Looks at a file that does not come to rest.
const MOST_LOOKS: u32 = 10;

/// What `look` sees, if two looks in a row see the same or it is what was seen `before`: who writes a file in place, or two
/// files one after the other, is not met half-way. The last look counts, whatever it saw.
pub(super) async fn settled<T: PartialEq, L>(
    before: Option<&T>,
    look: impl Fn() -> L,
) -> Result<T, CredentialError>
where
    L: Future<Output = Result<T, CredentialError>>,
{
    let mut seen = look().await;
    for _ in 1..MOST_LOOKS {
        if seen.as_ref().ok().is_some_and(|seen| before == Some(seen)) {
            break;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
        let again = look().await;
        let is_settled = again == seen;
        seen = again;
        if is_settled {
            break;
        }
    }
    seen
}

pub(super) async fn read(path: &Path, what: &str) -> Result<Vec<u8>, CredentialError> {
    let found = READS.read(path).await;
    found.map_err(|error| CredentialError::unreadable(what, path, &error))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_written_just_now_is_looked_at_until_it_rests() {
        for (sights, before, expected, looks) in [
            // Known, or at rest.
            (&["old"][..], Some("old"), Some("old"), 1),
            (&["old", "old"], None, Some("old"), 2),
            // Emptied and written, away and back again, one half and the whole.
            (&["", "new", "new"], Some("old"), Some("new"), 3),
            (&["!", "new", "new"], Some("old"), Some("new"), 3),
            (&["n", "new", "new"], Some("old"), Some("new"), 3),
            (&["n", "old"], Some("old"), Some("old"), 2),
            // Away for good.
            (&["!", "!"], Some("old"), None, 2),
            // Never at rest.
            (
                &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"],
                None,
                Some("10"),
                10,
            ),
        ] {
            let left = Mutex::new(sights.iter());
            let look = async || match *left.lock().next().unwrap() {
                "!" => Err(CredentialError::missing("away".to_owned())),
                sight => Ok(sight.to_owned()),
            };
            let before = before.map(str::to_owned);
            let seen = settled(before.as_ref(), look).await.ok();
            assert_eq!(seen.as_deref(), expected, "{sights:?}");
            assert_eq!(sights.len() - left.lock().len(), looks, "{sights:?}");
        }
    }
}

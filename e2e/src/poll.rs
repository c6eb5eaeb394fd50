//! Waiting for a condition: short interval, long cap, and the last answer in the error.

use std::fmt::Display;
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

/// Short enough that nobody notices, long enough that a 2-core machine is not busy with asking.
const INTERVAL: Duration = Duration::from_millis(20);

/// For what a healthy machine does within seconds. A test that passes never waits this long, so it can be generous.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Asks until `check` gives a value, and fails with what was wrong at the last attempt once `timeout` has passed.
///
/// The condition must be one that stays true (a level, not an edge), since it is looked at only now and then.
pub async fn wait_for<T, E: Display>(
    what: &str,
    timeout: Duration,
    mut check: impl AsyncFnMut() -> Result<T, E>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + timeout;
    let mut last = "no attempt ended".to_owned();
    loop {
        match tokio::time::timeout_at(deadline, check()).await {
            Ok(Ok(value)) => return Ok(value),
            // `{:#}` prints the whole chain of an `anyhow::Error` and changes nothing for a string.
            Ok(Err(reason)) => last = format!("{reason:#}"),
            Err(_) => {}
        }
        if Instant::now() + INTERVAL >= deadline {
            bail!("gave up waiting for {what} after {timeout:?}; the last attempt said: {last}");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_value_is_returned_as_soon_as_there_is_one() {
        let mut asked = 0;
        let value = wait_for("the third answer", PATIENCE, || {
            asked += 1;
            let answer = if asked == 3 {
                Ok(asked)
            } else {
                Err("not yet")
            };
            async move { answer }
        })
        .await;
        assert_eq!(value.unwrap(), 3);
    }

    #[tokio::test]
    async fn the_last_reason_is_in_the_error() {
        let error = wait_for::<(), _>("nothing", Duration::from_millis(50), || async {
            Err("it rains")
        })
        .await
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "gave up waiting for nothing after 50ms; the last attempt said: it rains"
        );
    }

    #[tokio::test]
    async fn a_check_that_hangs_does_not_hang_the_test() {
        let error = wait_for::<(), &str>("a hang", Duration::from_millis(50), std::future::pending)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no attempt ended"), "{error}");
    }
}

//! Asks the admin port of a running proxy.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::{Explanation, Question};
use crate::admin_client::{self, AdminPort, escaped};

/// More than an answer takes: for a consistent read the cluster is asked, and that waits little more than a second.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks a proxy at its admin port.
///
/// # Errors
/// It does not answer, or not as this version does.
pub fn ask(admin: &AdminPort, question: &Question) -> anyhow::Result<Explanation> {
    let request = format!("GET {}", target(question));
    match admin_client::ask(admin, &request, "", TIMEOUT)? {
        (200, body) => serde_json::from_str(&body)
            .context("the proxy's answer cannot be read; is it of another version?"),
        (404, _) => Err(admin_client::unknown(admin, "/why")),
        (_, body) => bail!("{}", body.trim()),
    }
}

/// `/why` with the question in its query.
fn target(question: &Question) -> String {
    let mut target = format!(
        "/why?method={}&target={}",
        question.method,
        escaped(question.target.as_bytes())
    );
    for (name, value) in &question.headers {
        let header = [name.as_str().as_bytes(), b": ", value.as_bytes()].concat();
        let _ = write!(target, "&header={}", escaped(&header));
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_arrives_as_it_was_asked() {
        let question = Question::parse(
            "get",
            "/clusters/a/api/v1/pods?labelSelector=a%3Db,c+d&x=é",
            &["Accept: application/json;q=0.5, */*", "X-A: b&c=d"],
        )
        .unwrap();
        let target = target(&question);
        assert!(target.is_ascii() && !target.contains(' '), "{target}");
        let (_, query) = target.split_once('?').unwrap();
        assert_eq!(Question::from_query(query), Ok(question));
    }
}

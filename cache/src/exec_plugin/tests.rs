//! Plugins that do as they should, and plugins that do not.

use std::path::Path;

use secrecy::ExposeSecret;

use super::*;
use crate::upstream::fake::within;

fn shell(script: &str) -> ExecPluginConfig {
    ExecPluginConfig {
        command: "sh".into(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec![("GREETING".to_owned(), "hello".to_owned())],
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        install_hint: None,
        cluster_info: None,
    }
}

const TOKEN: &str = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t0ken","expirationTimestamp":"2030-01-02T03:04:05Z"}}"#;

async fn run_at_once(config: &ExecPluginConfig) -> Result<ExecCredential, CredentialError> {
    // Not among the places, which the tests of this process would share.
    config.parse(&process::run(config, DEADLINE).await?)
}

async fn reason(script: &str) -> String {
    let outcome = run_at_once(&shell(script)).await;
    outcome.unwrap_err().to_string()
}

/// The id that a script wrote into this file.
pub(crate) async fn written_pid(file: &Path) -> String {
    within(async {
        loop {
            match std::fs::read_to_string(file) {
                Ok(pid) if pid.ends_with('\n') => return pid.trim().to_owned(),
                Ok(_) | Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// Waits until the process is no more, or only its parent has not heard of it yet.
pub(crate) async fn gone(pid: &str) {
    within(async {
        while let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            if stat.contains(") Z ") {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_and_its_end_are_read() {
    let credential = run_at_once(&shell(&format!("echo '{TOKEN}'")))
        .await
        .unwrap();
    assert_eq!(credential.token.unwrap().expose_secret(), "t0ken");
    assert_eq!(
        credential.expires.unwrap().to_string(),
        "2030-01-02T03:04:05Z"
    );
}

#[tokio::test]
async fn the_plugin_sees_its_variables_and_a_closed_stdin() {
    let script = r#"cat; printf '%s %s' "$GREETING" "$KUBERNETES_EXEC_INFO""#;
    let printed = process::run(&shell(script), DEADLINE).await.unwrap();
    assert_eq!(
        String::from_utf8(printed).unwrap(),
        r#"hello {"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#
    );
}

#[tokio::test]
async fn failures_are_told_without_secrets() {
    for (script, said) in [
        (
            "echo first >&2; echo 'token has expired, log in at https://login.example.com/x' >&2; exit 2",
            r#"the credential plugin "sh" failed (exit code 2): token has expired, log in at […]"#,
        ),
        (
            "echo 'bad answer for token=abc from 10.0.0.1:443' >&2; exit 1",
            r#"the credential plugin "sh" failed (exit code 1): bad answer for […] from […]"#,
        ),
        (
            // It says much, and is not held up by that.
            "yes '' | head -c 300000 >&2; echo 'the last word' >&2; exit 1",
            r#"the credential plugin "sh" failed (exit code 1): the last word"#,
        ),
        (
            "yes",
            r#"the credential plugin "sh" failed: it printed more than 1 MiB"#,
        ),
        (
            "kill -9 $$",
            r#"the credential plugin "sh" failed (killed by a signal)"#,
        ),
        (
            "echo '{\"token\": s3cret'",
            r#"the credential plugin "sh" printed no ExecCredential (line 1, column 11)"#,
        ),
        (
            "echo '{\"apiVersion\":\"client.authentication.k8s.io/v1beta1\",\"status\":{\"token\":\"x\"}}'",
            r#"the credential plugin "sh" answered in "client.authentication.k8s.io/v1beta1" instead of "client.authentication.k8s.io/v1""#,
        ),
        (
            "echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{}}'",
            r#"the credential plugin "sh" printed neither a token nor a client certificate"#,
        ),
        (
            "echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\"}'",
            r#"the credential plugin "sh" printed an ExecCredential without status"#,
        ),
    ] {
        assert_eq!(reason(script).await, said, "{script}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_with_its_hint() {
    let mut config = shell("");
    config.command = "/no/such/dir/aws".into();
    config.install_hint = Some("install the aws cli\n".to_owned());
    assert_eq!(
        run_at_once(&config).await.unwrap_err().to_string(),
        r#"the credential plugin "aws" cannot be started: No such file or directory (os error 2); install the aws cli"#
    );
}

/// The clock is paused: it goes on when all have come to where they wait.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_is_ended_with_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (dir.path().join("own"), dir.path().join("other"));
    // Neither hears of a polite request.
    let script = format!(
        "trap '' TERM INT HUP; sleep 600 & echo $! > {}; echo $$ > {}; while :; do sleep 600; done",
        other.display(),
        own.display()
    );
    let hangs = shell(&script);
    let mut running = Box::pin(process::run(&hangs, DEADLINE));
    let (pids, error) = tokio::join!(
        async { [written_pid(&own).await, written_pid(&other).await] },
        &mut running
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        r#"the credential plugin "sh" did not end within 30 s"#
    );
    for pid in pids {
        gone(&pid).await;
    }
}

#[tokio::test]
async fn a_plugin_that_nobody_waits_for_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; wait", file.display());
    let hangs = shell(&script);
    let pid = {
        let running = std::pin::pin!(process::run(&hangs, DEADLINE));
        tokio::select! {
            _ = running => panic!("it hangs"),
            pid = written_pid(&file) => pid,
        }
    };
    gone(&pid).await;
}

#[tokio::test]
async fn what_a_plugin_leaves_behind_does_not_hold_it_up() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    // An agent, which keeps both pipes open.
    let script = format!("sleep 600 & echo $! > {}; echo '{TOKEN}'", file.display());
    let credential = run_at_once(&shell(&script)).await.unwrap();
    assert_eq!(credential.token.unwrap().expose_secret(), "t0ken");
    let pid = written_pid(&file).await;
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(status.contains("(sleep)"), "it may stay: {status}");
    let killed = tokio::process::Command::new("kill").arg(&pid).status();
    assert!(killed.await.unwrap().success());
}

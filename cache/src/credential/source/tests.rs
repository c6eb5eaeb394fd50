//! Credentials of all kinds, and what befalls those who write them.

use super::*;
use crate::cluster_accessor::NotConnectedReason;
use crate::exec_plugin::tests::{gone, written_pid};
use crate::upstream::fake::within;

fn header(credential: &Credential) -> &str {
    let value = credential.authorization.as_ref().unwrap();
    assert!(value.is_sensitive());
    value.to_str().unwrap()
}

#[tokio::test]
async fn a_token_file_is_read_again_and_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let source = CredentialSource::new(CredentialConfig::TokenFile(path.clone()));
    let missing = source.load(false).await.unwrap_err();
    assert_eq!(missing.to_string(), "the token file cannot be read");
    let detail = format!("{}: No such file or directory (os error 2)", path.display());
    assert_eq!(missing.detail(), Some(&*detail));
    std::fs::write(&path, " one\n").unwrap();
    assert_eq!(header(&source.load(false).await.unwrap()), "Bearer one");
    std::fs::write(&path, "two\r\n\n").unwrap();
    assert_eq!(header(&source.load(false).await.unwrap()), "Bearer two");
    std::fs::write(&path, "\n").unwrap();
    let empty = source.load(false).await.unwrap_err();
    assert_eq!(empty.to_string(), "the token file is empty");
    let detail = format!("{}: the token file is empty", path.display());
    assert_eq!(empty.detail(), Some(&*detail));
    std::fs::write(&path, "two\nlines").unwrap();
    let odd = source.load(false).await.unwrap_err();
    let detail = format!("{}: {odd}", path.display());
    assert_eq!(odd.detail(), Some(&*detail));
}

/// The clock is paused: it goes on where all wait for it, and stands while a file is read.
#[tokio::test(start_paused = true)]
async fn another_credential_than_the_refused_one_is_waited_for_a_little() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "old").unwrap();
    let source = CredentialSource::new(CredentialConfig::TokenFile(path.clone()));
    let old = source.load(false).await.unwrap();
    // It comes late; before that there is no file for a while, which is nobody's failure.
    let write = async {
        tokio::time::sleep(RENEWAL_PATIENCE / 4).await;
        std::fs::remove_file(&path).unwrap();
        tokio::time::sleep(RENEWAL_PATIENCE / 4).await;
        std::fs::write(&path, "new").unwrap();
    };
    let before = Instant::now();
    let (new, ()) = tokio::join!(source.renew(&old), write);
    assert_eq!(header(&new.unwrap()), "Bearer new");
    assert!(before.elapsed() < RENEWAL_PATIENCE);
    assert_eq!(source.seen.lock().failures, 0);
    // It is there already.
    let before = Instant::now();
    assert_eq!(header(&source.renew(&old).await.unwrap()), "Bearer new");
    assert!(before.elapsed() < RENEWAL_LOOK);
    // None comes, and a configuration that cannot change by itself is not given up sooner: it may be replaced.
    let fixed = CredentialSource::new(CredentialConfig::Token("t".into()));
    for source in [source, fixed] {
        let refused = source.load(false).await.unwrap();
        let before = Instant::now();
        let renewed = source.renew(&refused).await.unwrap();
        assert!(renewed.same(&refused));
        assert!(before.elapsed() >= RENEWAL_PATIENCE);
    }
}

#[tokio::test]
async fn refusals_do_not_run_a_plugin_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("runs");
    let source = plugin(&file, PRINT);
    let first = source.load(false).await.unwrap();
    for _ in 0..5 {
        assert_eq!(header(&source.renew(&first).await.unwrap()), "Bearer t2");
    }
    assert_eq!(runs(&file), 2);
    let ran = source.seen.lock().ran_rejected.unwrap();
    source.seen.lock().ran_rejected = ran.checked_sub(EXEC_MIN_INTERVAL);
    assert_eq!(header(&source.renew(&first).await.unwrap()), "Bearer t3");
}

#[tokio::test]
async fn fixed_credentials_become_headers() {
    let token = CredentialSource::new(CredentialConfig::Token("t".into()));
    assert_eq!(header(&token.load(false).await.unwrap()), "Bearer t");
    let basic = CredentialSource::new(CredentialConfig::Basic {
        username: "u".to_owned(),
        password: "p:w".into(),
    });
    assert_eq!(header(&basic.load(false).await.unwrap()), "Basic dTpwOnc=");
    let broken = CredentialSource::new(CredentialConfig::Token("a\nb".into()));
    assert_eq!(
        broken.load(false).await.unwrap_err().to_string(),
        "the credential holds characters that no header may hold"
    );
}

/// A plugin that counts its runs in a file, and does then what the script says with the count in `n`.
fn plugin(runs: &Path, script: &str) -> CredentialSource {
    let script = format!("echo x >> {0}; n=$(wc -l < {0}); {script}", runs.display());
    CredentialSource::new(CredentialConfig::Exec(ExecPluginConfig {
        command: "sh".into(),
        args: vec!["-c".to_owned(), script],
        env: Vec::new(),
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        install_hint: None,
        cluster_info: None,
    }))
}

const PRINT: &str =
    r#"printf '{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t%s"}}' $n"#;

fn runs(file: &Path) -> usize {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().count()
}

#[tokio::test]
async fn a_plugin_runs_again_only_when_rejected_or_due() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("runs");
    let source = plugin(&file, PRINT);
    assert_eq!(header(&source.load(false).await.unwrap()), "Bearer t1");
    assert_eq!(header(&source.load(false).await.unwrap()), "Bearer t1");
    assert_eq!(header(&source.load(true).await.unwrap()), "Bearer t2");
    assert_eq!(header(&source.load(false).await.unwrap()), "Bearer t2");
}

#[tokio::test]
async fn a_plugin_that_was_rejected_and_fails_leaves_nothing_that_was_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("runs");
    let source = plugin(&file, &format!("[ $n = 1 ] || exit 1; {PRINT}"));
    source.load(false).await.unwrap();
    for rejected in [true, false] {
        let error = source.load(rejected).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"the credential plugin "sh" failed (exit code 1)"#
        );
        assert_eq!(source.failed_as_before(), !rejected);
    }
    assert_eq!(runs(&file), 3);
}

#[tokio::test]
async fn a_load_cut_short_does_not_start_the_plugin_again() {
    let dir = tempfile::tempdir().unwrap();
    let (file, go) = (dir.path().join("runs"), dir.path().join("go"));
    let wait = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; {PRINT}",
        go.display()
    );
    let source = plugin(&file, &wait);
    // As an owner does whose configuration changes again and again.
    for _ in 0..20 {
        let load = std::pin::pin!(source.load(false));
        let started = async {
            while runs(&file) == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = load => panic!("it waits"),
            () = within(started) => {}
        }
    }
    std::fs::write(&go, "").unwrap();
    assert_eq!(header(&source.load(false).await.unwrap()), "Bearer t1");
    assert_eq!(runs(&file), 1);
}

#[tokio::test]
async fn a_source_that_is_replaced_ends_its_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let (file, pid) = (dir.path().join("runs"), dir.path().join("pid"));
    let source = plugin(
        &file,
        &format!("echo $$ > {}; exec sleep 600", pid.display()),
    );
    let pid = tokio::select! {
        _ = source.load(false) => panic!("it hangs"),
        pid = written_pid(&pid) => pid,
    };
    drop(source);
    gone(&pid).await;
}

#[test]
fn a_plugin_that_goes_on_failing_is_run_less_and_less_often() {
    let source = plugin(Path::new("/dev/null"), "");
    let pauses: Vec<_> = (0..8)
        .map(|failures| {
            source.seen.lock().failures = failures;
            source.retry_in().as_secs()
        })
        .collect();
    assert_eq!(pauses, [10, 10, 20, 40, 80, 160, 160, 160]);
    let files = CredentialSource::new(CredentialConfig::TokenFile("/dev/null".into()));
    files.seen.lock().failures = 8;
    assert_eq!(files.retry_in(), FILE_LOOK);
}

#[tokio::test]
async fn what_is_no_file_of_a_token_is_told_and_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let source = CredentialSource::new(CredentialConfig::TokenFile(path.clone()));
    let told = async |detail: &str| {
        let error = within(source.load(false)).await.unwrap_err();
        assert_eq!(error.to_string(), "the token file cannot be read");
        let expected = format!("{}: {detail}", path.display());
        assert_eq!(error.detail(), Some(&*expected));
    };
    std::fs::create_dir(&path).unwrap();
    told("it is not a file").await;
    std::fs::remove_dir(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    told("it is not a file").await;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, vec![b'x'; (1 << 20) + 1]).unwrap();
    told("it is larger than 1 MiB").await;
    std::fs::write(&path, "t").unwrap();
    assert_eq!(header(&source.load(false).await.unwrap()), "Bearer t");
}

#[tokio::test]
async fn a_certificate_beside_the_key_of_another_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    let source = CredentialSource::new(CredentialConfig::ClientCertificateFiles {
        certificate: certificate.clone(),
        key: key.clone(),
    });
    let pair = || {
        let made = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    let ((old_certificate, old_key), (new_certificate, new_key)) = (pair(), pair());
    std::fs::write(&certificate, &old_certificate).unwrap();
    std::fs::write(&key, old_key).unwrap();
    let old = source.load(false).await.unwrap();
    for half in ["", &new_certificate[..100], &new_certificate] {
        std::fs::write(&certificate, half).unwrap();
        let error = source.load(false).await.unwrap_err();
        assert_eq!(error.reason(), NotConnectedReason::CredentialInvalid);
        assert_eq!(
            error.to_string(),
            "the client certificate cannot be used",
            "{:?}",
            error.detail()
        );
        let file = format!("{}: ", certificate.display());
        assert!(error.detail().is_some_and(|it| it.starts_with(&file)));
    }
    std::fs::write(&key, new_key).unwrap();
    let new = source.load(false).await.unwrap();
    assert!(!new.same(&old) && new.same(&source.load(false).await.unwrap()));
}

#[tokio::test]
async fn a_plugin_that_prints_a_certificate_of_another_key_has_printed_none() {
    let one = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
    let printed = ExecCredential {
        token: None,
        certificate: Some(ClientCertificate::new(
            one.cert.pem().into_bytes(),
            other.signing_key.serialize_pem().into(),
        )),
        expires: None,
    };
    let error = from_plugin(printed).unwrap_err();
    assert_eq!(error.reason(), NotConnectedReason::CredentialInvalid);
}

#[tokio::test(start_paused = true)]
async fn what_expires_is_renewed_ahead_of_time() {
    for (life, renewed_after) in [(3600_u64, 3540_u64), (100, 80), (5, 10), (0, 10)] {
        let expires = Timestamp::now() + Duration::from_secs(life);
        let after = refresh_time(expires) - Instant::now();
        let after = after.as_millis().div_ceil(1000);
        assert_eq!(u64::try_from(after).unwrap(), renewed_after, "{life}");
    }
}

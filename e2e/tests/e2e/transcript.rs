//! What kubectl prints for one command after the other, without what differs from run to run.

use std::fmt::Write as _;

use fleetcache_e2e::kubectl::Kubectl;

use crate::pair::Pair;

/// One command line; words are separated by single spaces, and `%` stands for a space within a word.
pub(crate) struct Step {
    line: &'static str,
    input: String,
    only_end: bool,
}

/// A command without input.
pub(crate) fn step(line: &'static str) -> Step {
    Step {
        line,
        input: String::new(),
        only_end: false,
    }
}

impl Step {
    /// What the command reads from its standard input.
    pub(crate) fn input(self, input: impl Into<String>) -> Self {
        Self {
            input: input.into(),
            ..self
        }
    }

    /// Compares the last line only, of a command that reports what it is waiting for.
    pub(crate) fn only_end(self) -> Self {
        Self {
            only_end: true,
            ..self
        }
    }
}

/// Runs the commands directly and through the proxy, each time in a namespace of its own, and fails at the first command
/// that says or returns something else.
pub(crate) async fn check(files: &[(&str, &str)], env: &[(&str, &str)], steps: &[Step]) {
    let pair = Pair::shared().await;
    let direct = transcript(
        &pair,
        pair.cluster.kubectl().await.unwrap(),
        files,
        env,
        steps,
    )
    .await;
    let proxied = pair.proxy.kubectl(pair.cluster.name()).await.unwrap();
    let proxied = transcript(&pair, proxied, files, env, steps).await;
    for (direct, proxied) in direct.iter().zip(&proxied) {
        // Shown with `--nocapture`: that both say the same proves little when both complain about the command.
        println!("{direct}");
        assert!(
            direct == proxied,
            "--- directly:\n{direct}\n--- through the proxy:\n{proxied}"
        );
    }
}

async fn transcript(
    pair: &Pair,
    mut kubectl: Kubectl,
    files: &[(&str, &str)],
    env: &[(&str, &str)],
    steps: &[Step],
) -> Vec<String> {
    let namespace = pair.cluster.namespace("kubectl").await.unwrap();
    for (name, text) in files {
        kubectl.write_file(name, text).unwrap();
    }
    for (name, value) in env {
        kubectl = kubectl.with_env(name, *value);
    }
    let home = kubectl.home().display().to_string();
    let context = if kubectl.is_for(&pair.proxy.kubeconfig()) {
        pair.proxy.context(pair.cluster.name()).unwrap()
    } else {
        pair.cluster
            .context(fleetcache_e2e::control_plane::User::Admin)
            .unwrap()
    };
    let mut said = Vec::new();
    for Step {
        line,
        input,
        only_end,
    } in steps
    {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('%', " ")).collect();
        let mut args = vec!["--namespace", namespace.as_str()];
        args.extend(words.iter().map(String::as_str));
        let output = kubectl.run_with_input(&args, input).await.unwrap();
        let mut text = format!("$ kubectl {line}\nexit code {:?}\n", output.code);
        let stdout = if *only_end {
            output.stdout.lines().last().unwrap_or_default().to_owned()
        } else {
            output.stdout
        };
        for stream in [stdout, output.stderr] {
            let stream = stream
                .replace(&namespace, "NAMESPACE")
                .replace(&context.server, "SERVER")
                .replace(&home, "HOME");
            write!(text, "{}", normalise(&stream)).unwrap();
        }
        said.push(text);
    }
    said
}

/// Replaces times, ages, uids, versions and addresses, and makes columns that grew with them one width.
pub(crate) fn normalise(text: &str) -> String {
    let mut normal = String::new();
    for line in text.lines() {
        // Kinds that other tests define in the meantime.
        if line.contains(".example.com") {
            continue;
        }
        // "Start Time:  Sat, 29 Nov 2026 18:46:37 +0000"
        let line = if line.ends_with(" +0000") {
            line.split_once(':').map_or(line, |(key, _)| key)
        } else {
            line
        };
        let mut words = line
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(normal_word);
        // Indentation is meaning in YAML; the width of columns is not.
        let indentation = line.len() - line.trim_start().len();
        normal.extend(std::iter::repeat_n(' ', indentation));
        normal.push_str(&words.next().unwrap_or_default());
        words.for_each(|word| {
            normal.push(' ');
            normal.push_str(&word);
        });
        normal.push('\n');
    }
    normal
}

fn normal_word(word: &str) -> String {
    let core = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let kind = match core {
        "" => return word.to_owned(),
        _ if is_age(core) => "AGE",
        _ if is_time(core) => "TIME",
        // The directories of `kubectl diff`.
        _ if core.contains("/LIVE-") || core.contains("/MERGED-") => "FILE",
        _ if is_uid(core) => "UID",
        _ if core.starts_with("10.244.") || core.starts_with("10.0.0.") => "IP",
        // resourceVersion: "12345"
        _ if word.starts_with('"')
            && word.ends_with('"')
            && core.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            "VERSION"
        }
        _ => return word.to_owned(),
    };
    word.replace(core, kind)
}

/// `5s`, `1m2s`, `3d4h`.
fn is_age(word: &str) -> bool {
    let mut groups = word.split_inclusive(|letter: char| letter.is_ascii_alphabetic());
    groups.all(|group| {
        let (number, unit) = group.split_at(group.len() - 1);
        !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && "smhdy".contains(unit)
    })
}

fn is_time(word: &str) -> bool {
    word.len() >= 20
        && word.ends_with('Z')
        && word.as_bytes()[10] == b'T'
        && word[..4].bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().enumerate().all(|(at, byte)| {
            if [8, 13, 18, 23].contains(&at) {
                byte == b'-'
            } else {
                byte.is_ascii_hexdigit()
            }
        })
}

#[test]
fn what_differs_from_run_to_run_is_replaced() {
    let text = "\
NAME   DATA   AGE
a      1      1m12s
  uid: 2e0cbd39-6f21-4a3c-9d58-0d5b7f9a3b11
  creationTimestamp: \"2026-11-29T18:46:37Z\"
  resourceVersion: \"4711\"
Start Time:   Sat, 29 Nov 2026 18:46:37 +0000
IP:  10.244.0.17
replicas: 3
class Sms 3days";
    let normal = "\
NAME DATA AGE
a 1 AGE
  uid: UID
  creationTimestamp: \"TIME\"
  resourceVersion: \"VERSION\"
Start Time
IP: IP
replicas: 3
class Sms 3days
";
    assert_eq!(normalise(text), normal);
}

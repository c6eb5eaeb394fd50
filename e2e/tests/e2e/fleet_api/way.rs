//! What `fleetcache status` says where the kubeconfig of the proxy is not enough: what it says to do is done, and helps.

use fleetcache_e2e::binaries;
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use rcgen::CertificateParams;

use super::status::{run, text};
use crate::auth::files::{authority, signed};

/// The commands in a message, with these words in the place of those in capitals.
fn commands(message: &str, words: &[(&str, &str)]) -> Vec<Vec<String>> {
    let lines = message.lines().filter_map(|line| line.strip_prefix("  "));
    let filled = |word: &str| {
        let fill = |word: String, (name, value): &(&str, &str)| word.replace(name, value);
        words.iter().fold(word.to_owned(), fill)
    };
    lines
        .map(|line| line.split(' ').map(filled).collect())
        .collect()
}

async fn do_what_it_says(message: &str, words: &[(&str, &str)]) {
    let commands = commands(message, words);
    assert!(!commands.is_empty(), "{message}");
    for command in commands {
        let args: Vec<_> = command[1..].iter().map(String::as_str).collect();
        let program = match &*command[0] {
            "fleetcache" => binaries::fleetcache().await,
            "kubectl" => binaries::Program::Kubectl.path().await,
            other => panic!("{other}"),
        };
        let status = std::process::Command::new(program.unwrap())
            .args(args)
            .status();
        assert!(status.unwrap().success(), "{command:?}");
    }
}

#[tokio::test]
async fn users_and_certificates_of_ones_own_are_what_is_named() {
    let sim = SimCluster::start(SimConfig::new("edge")).await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let issuer = authority("servers");
    let (certificate, key) = signed(
        &issuer,
        &CertificateParams::new(vec!["localhost".to_owned()]).unwrap(),
    );
    let (ca, kubeconfig) = (
        file("ca.crt", &issuer.pem()),
        file("input", &sim.kubeconfig()),
    );
    let config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
         authentication: {{ tokenFile: {} }}\nauthorization: {{ fleetReaders: {{ users: [alice] }} }}\n\
         tls: {{ certFile: {}, keyFile: {} }}\n",
        file("tokens.csv", "alices,alice,1\nbobs,bob,2\n"),
        file("tls.crt", &certificate),
        file("tls.key", &key),
    );
    let options = Options {
        kubeconfigs: vec![kubeconfig.into()],
        config: Some(config),
        ..Options::default()
    };
    let proxy = Proxy::start(options).await.unwrap();
    let state_dir = proxy.kubeconfig().parent().unwrap().to_owned();
    let port = proxy.url().rsplit_once(':').unwrap().1;
    let copy = files.path().join("mine");
    let server = format!("localhost:{port}");
    let done = async |message: &str, token: &str| {
        let words = [
            ("COPY", text(&copy)),
            ("CA.crt", &ca),
            ("NAME:PORT", &server),
            ("TOKEN", token),
        ];
        do_what_it_says(message, &words).await;
    };
    let in_dir = ["--state-dir", text(&state_dir)];
    let mine = ["--fleet-kubeconfig", text(&copy)];
    let mut wants = String::new();
    for (args, expect) in [
        (
            in_dir,
            "is by an authority that this system does not trust, and none is named in ",
        ),
        (mine, "is for other names than that in https://127.0.0.1:"),
        (mine, "wants a credential, and "),
    ] {
        let (code, _, said) = run(&args).await;
        assert!(code == 1 && said.contains(expect), "{said}");
        done(&said, "alices").await;
        wants = said;
    }
    let (code, table, said) = run(&mine).await;
    assert!(code == 0 && table.contains("\nedge "), "{table}{said}");
    for (token, expect) in [
        ("bobs", "`authorization.fleetReaders` names who may"),
        (
            "carols",
            "does not accept the credential of user \"fleetcache\" in ",
        ),
    ] {
        done(&wants, token).await;
        let (code, _, said) = run(&mine).await;
        assert!(code == 1 && said.contains(expect), "{said}");
    }
    let (code, _, said) = run(&in_dir).await;
    assert!(code == 1 && said.contains("is by an authority"), "{said}");
    let other = authority("others");
    let other = file("ca.crt", &other.pem());
    assert_eq!(other, ca);
    let (_, _, said) = run(&in_dir).await;
    done(&said, "alices").await;
    let (code, _, said) = run(&mine).await;
    assert!(
        code == 1 && said.contains("is by another authority than the one in"),
        "{said}"
    );
}

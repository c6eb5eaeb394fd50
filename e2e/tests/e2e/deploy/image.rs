//! What the image is built from.

use std::process::Command;

use fleetcache_e2e::binaries;

use super::files::{copy, repository};

/// One instruction of the Dockerfile, its words.
type Instruction = Vec<String>;

/// The instructions of each stage.
fn stages() -> Vec<Vec<Instruction>> {
    let path = repository().join("deploy/Dockerfile");
    let text = std::fs::read_to_string(path).unwrap();
    let mut stages: Vec<Vec<Instruction>> = Vec::new();
    let lines = text.lines().filter(|it| !it.starts_with('#'));
    for line in lines {
        let words: Instruction = line.split_whitespace().map(str::to_owned).collect();
        match words.first().map(String::as_str) {
            None => {}
            Some("FROM") => stages.push(vec![words]),
            Some(_) => stages.last_mut().unwrap().push(words),
        }
    }
    stages
}

fn of<'a>(stage: &'a [Instruction], name: &str) -> impl Iterator<Item = &'a [String]> {
    let found = stage.iter().filter(move |it| it[0] == name);
    found.map(|it| &it[1..])
}

#[test]
fn the_image_is_built_from_what_is_locked_and_nothing_of_the_tests() {
    let stages = stages();
    let [build, last] = &stages[..] else {
        panic!("{stages:?}");
    };
    let dir = tempfile::tempdir().unwrap();
    let ignored = repository().join("deploy/Dockerfile.dockerignore");
    let ignored = std::fs::read_to_string(ignored).unwrap();
    let sent: Vec<&str> = ignored
        .lines()
        .filter_map(|it| it.strip_prefix('!'))
        .collect();
    let mut copied = Vec::new();
    for words in of(build, "COPY") {
        let (to, from) = words.split_last().unwrap();
        for from in from {
            let source = repository().join(from);
            if source.is_dir() {
                copy(&source, &dir.path().join(to));
            } else {
                let to = if to == "./" { from } else { to };
                let to = dir.path().join(to);
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::copy(source, to).unwrap();
            }
            copied.push(from.as_str());
        }
    }
    copied.sort_unstable();
    let mut all_sent = sent.clone();
    all_sent.sort_unstable();
    assert_eq!(
        copied, all_sent,
        "all that is sent is used, and the other way round"
    );
    assert!(
        copied
            .iter()
            .all(|it| !it.starts_with("e2e") || *it == "e2e/Cargo.toml")
    );

    let mut commands: Vec<String> = of(build, "RUN").map(|it| it.join(" ")).collect();
    let cargo = commands.pop().unwrap();
    for command in commands {
        let status = Command::new("sh")
            .args(["-c", &command])
            .current_dir(dir.path())
            .status();
        assert!(status.unwrap().success(), "{command}");
    }
    // The build itself takes minutes; that it is of exactly what Cargo.lock has, and of what is there, is seen at once.
    let expected = "cargo build --release --locked -p fleetcache --bin fleetcache";
    assert_eq!(cargo, expected);
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "-p",
            "fleetcache",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{told}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.contains("fleetcache-cache v"), "{tree}");
    assert!(!tree.contains("fleetcache-e2e"), "{tree}");

    // One line of its own says as whom it runs, as the Deployment does.
    let user: Vec<_> = of(last, "USER").collect();
    assert_eq!(user, [["65532:65532".to_owned()]]);
    let froms = [build, last].map(|stage| of(stage, "FROM").next().unwrap()[0].clone());
    for image in &froms {
        let tag = image.rsplit_once(':').map(|(_, tag)| tag);
        assert!(tag.is_some_and(|tag| tag != "latest"), "{image}");
    }
    let toolchain = std::fs::read_to_string(repository().join("rust-toolchain.toml")).unwrap();
    let version = toolchain.split('"').nth(1).unwrap();
    assert!(
        froms[0].contains(&format!("rust:{version}-")),
        "{}",
        froms[0]
    );
    // The C library of the one is that of the other.
    assert!(
        froms[0].ends_with("-bookworm") && froms[1].contains("-debian12:"),
        "{froms:?}"
    );
}

#[tokio::test]
async fn the_binary_needs_only_what_the_image_has() {
    let program = binaries::fleetcache().await.unwrap();
    let needs = Command::new("ldd").arg(&program).output().unwrap();
    let text = String::from_utf8(needs.stdout).unwrap();
    let name = |line: &str| {
        let path = line.split_whitespace().next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let needs: Vec<String> = text.lines().map(name).collect();
    assert!(!needs.is_empty(), "{text}");
    // Of distroless' `cc`: the C library and what the compiler's own code needs.
    let has = ["linux-vdso.so.1", "libgcc_s.so.1", "libm.so.6", "libc.so.6"];
    for library in needs {
        let is_there = has.contains(&&*library) || library.starts_with("ld-linux-");
        assert!(is_there, "{library}\n{text}");
    }
}

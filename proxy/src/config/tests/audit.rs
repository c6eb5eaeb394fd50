//! Where the audit log goes.

use super::*;

#[test]
fn a_file_or_standard_output() {
    let of = |text: &str| parse(&document(text)).unwrap().audit;
    let file = |path: &str| Some(AuditTarget::File(path.into()));
    assert_eq!(of(""), None);
    assert_eq!(of("audit:"), None);
    assert_eq!(of("audit: { path: \"-\" }"), Some(AuditTarget::Stdout));
    assert_eq!(of("audit: { path: a }"), file("/etc/fleetcache/a"));
    assert_eq!(of("audit: { path: /a/b }"), file("/a/b"));
    let missing = "audit.path: missing; the path of a file, or \"-\" for standard output";
    check("audit: {}", &[missing]);
    check("audit: { path: }", &[missing]);
    check("audit: { path: \"\" }", &["audit.path: must not be empty"]);
    check(
        "audit: { path: 1 }",
        &["audit.path: expected a string, got a number"],
    );
    check("audit: a", &["audit: expected a mapping, got a string"]);
    check(
        "audit: { path: a, level: b }",
        &["audit.level: unknown key"],
    );
}

#[test]
fn what_cannot_be_written_is_told_when_it_is_checked() {
    let home: Environment<'_> = &|name| (name == "HOME").then(|| "/home/a".into());
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name).display().to_string();
    let check = |path: &str, problem: Option<&str>| {
        let file = temp.path().join("config.yaml");
        let text = format!(
            "stateDir: state\nauthentication: {{ tokenFile: tokens }}\naudit: {{ path: \"{path}\" }}\n"
        );
        std::fs::write(&file, document(&text)).unwrap();
        let mistakes = check_file(&file, home).mistakes.to_string();
        let expect = problem.map(|it| format!("{}: audit.path: {it}", file.display()));
        assert_eq!(mistakes, expect.unwrap_or_default(), "{path}");
    };
    std::fs::write(temp.path().join("tokens"), "t,u,1\n").unwrap();
    std::fs::write(temp.path().join("there"), "as it was\n").unwrap();
    check("-", None);
    check("new", None);
    check("there", None);
    assert!(!temp.path().join("new").exists(), "a check makes nothing");
    let is_used = |name: &str| format!("{} is a file that the proxy reads; name another", at(name));
    check("tokens", Some(&is_used("tokens")));
    std::os::unix::fs::symlink("tokens", temp.path().join("link")).unwrap();
    check("link", Some(&is_used("link")));
    check("state/token", Some(&is_used("state/token")));
    check("config.yaml", Some(&is_used("config.yaml")));
    let no_directory = format!(
        "its directory {} cannot be used: No such file or directory (os error 2)",
        at("none")
    );
    check("none/audit", Some(&no_directory));
    let no_directory = format!("{} is not a directory", at("there"));
    // The path is none of a file then, and nothing is found at it.
    check("there/audit", Some(&no_directory));
    let not_regular =
        |path: &str| format!("{path}: it is not a regular file; standard output is \"-\"");
    check("/dev/null", Some(&not_regular("/dev/null")));
    std::fs::create_dir(temp.path().join("directory")).unwrap();
    check("directory", Some(&not_regular(&at("directory"))));
    assert_eq!(
        std::fs::read(temp.path().join("there")).unwrap(),
        b"as it was\n"
    );
}

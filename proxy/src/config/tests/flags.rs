//! Flags and variables, beside a file.

use super::*;

#[test]
fn defaults_come_from_the_environment() {
    let config = from_args(&ServeArgs::default(), &[("HOME", "/home/a")]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8443");
    assert_eq!(config.admin_listen.to_string(), "127.0.0.1:8081");
    assert_eq!(
        config.state_dir,
        Path::new("/home/a/.local/state/fleetcache")
    );
    assert_eq!(
        config.sources.kubeconfigs[0].paths,
        [Path::new("/home/a/.kube/config")]
    );
    assert_eq!(config.settings("any").max_in_flight, 400);

    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("a");
    std::fs::write(&file, "").unwrap();
    let list = format!("/missing:{}::", file.display());
    let env = [
        ("HOME", "/home/a"),
        ("XDG_STATE_HOME", "/state"),
        ("KUBECONFIG", &list),
    ];
    let config = from_args(&ServeArgs::default(), &env).unwrap();
    assert_eq!(config.state_dir, Path::new("/state/fleetcache"));
    assert_eq!(config.sources.kubeconfigs[0].present(), [file]);

    let env = [
        ("HOME", "/home/a"),
        ("XDG_STATE_HOME", "relative"),
        ("KUBECONFIG", "/no:/file"),
    ];
    let config = from_args(&ServeArgs::default(), &env).unwrap();
    assert_eq!(
        config.state_dir,
        Path::new("/home/a/.local/state/fleetcache")
    );
    assert_eq!(
        config.sources.kubeconfigs[0].present(),
        ["/no", "/file"].map(PathBuf::from)
    );
}

#[test]
fn flags_override_the_file() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("config.yaml");
    let text = "listen: 127.0.0.1:1\nadminListen: 127.0.0.1:2\nclusters: { kubeconfigs: [ { path: a }, { path: b, \
                contexts: [x] } ] }\n";
    std::fs::write(&path, document(text)).unwrap();
    let mut args = ServeArgs {
        config: Some(path),
        state_dir: Some("/s".into()),
        listen: Some("127.0.0.1:3".to_owned()),
        ..ServeArgs::default()
    };
    let config = from_args(&args, &[]).unwrap();
    assert_eq!(config.listen.port, 3);
    assert_eq!(config.admin_listen.port, 2);
    assert_eq!(config.sources.kubeconfigs[1].paths, [temp.path().join("b")]);
    assert_eq!(config.sources.kubeconfigs[1].contexts, ["x"]);

    args.context = vec!["y".to_owned()];
    let config = from_args(&args, &[]).unwrap();
    assert_eq!(config.sources.kubeconfigs.len(), 2);
    assert!(
        config
            .sources
            .kubeconfigs
            .iter()
            .all(|it| it.contexts == ["y"])
    );

    args.kubeconfig = vec!["c".into(), "d".into()];
    let config = from_args(&args, &[]).unwrap();
    assert_eq!(config.sources.kubeconfigs.len(), 1);
    assert_eq!(
        config.sources.kubeconfigs[0].paths,
        ["c", "d"].map(PathBuf::from)
    );
    assert_eq!(config.sources.kubeconfigs[0].contexts, ["y"]);
}

#[test]
fn mistakes_of_flags_and_file_come_together() {
    let args = ServeArgs {
        config: Some("/missing.yaml".into()),
        listen: Some("x".to_owned()),
        ..ServeArgs::default()
    };
    let mistakes = from_args(&args, &[]).unwrap_err();
    let paths: Vec<_> = mistakes.0.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/missing.yaml", "--listen", "--state-dir"]);
}

#[test]
fn a_variable_is_blamed_for_its_value() {
    let check = |args: &ServeArgs, env: &[(&str, &str)], expect: &str| {
        let env = [env, &[("HOME", "/home/a")]].concat();
        assert_eq!(from_args(args, &env).unwrap_err().to_string(), expect);
    };
    let wrong = "\"x\" is not an address such as \"127.0.0.1:8443\" or \"[::]:8443\"";
    let mut args = ServeArgs {
        listen: Some("x".to_owned()),
        ..ServeArgs::default()
    };
    check(
        &args,
        &[("FLEETCACHE_LISTEN", "x")],
        &format!("--listen (FLEETCACHE_LISTEN): {wrong}"),
    );
    check(
        &args,
        &[("FLEETCACHE_LISTEN", "y")],
        &format!("--listen: {wrong}"),
    );
    // The other port's default.
    args.listen = Some("127.0.0.1:8081".to_owned());
    check(
        &args,
        &[],
        "--listen: the admin port (127.0.0.1:8081) and the HTTPS port (127.0.0.1:8081) exclude each other; choose another for one",
    );
    args.admin_listen = Some("127.0.0.1:8081".to_owned());
    check(
        &args,
        &[("FLEETCACHE_ADMIN_LISTEN", "127.0.0.1:8081")],
        "--admin-listen (FLEETCACHE_ADMIN_LISTEN): the admin port (127.0.0.1:8081) and the HTTPS port (127.0.0.1:8081) exclude each other; choose another for one",
    );
}

//! Durations that are too short, by themselves or beside others.

use super::*;

#[test]
fn what_is_absurdly_short_is_refused() {
    for (key, shortest, or_zero) in [
        ("defaults.probe.interval", "100ms", ""),
        ("defaults.probe.timeout", "100ms", ""),
        ("defaults.connectTimeout", "100ms", ""),
        ("defaults.requestTimeout", "1s", ""),
        ("connections.backoffMin", "10ms", ""),
        ("cache.idleTimeout", "1s", ""),
        ("cache.selfCheckInterval", "100ms", ", or 0s"),
    ] {
        let at = |value: &str| {
            let keys: Vec<_> = key.split('.').collect();
            let (last, sections) = keys.split_last().unwrap();
            let open: String = sections.iter().map(|it| format!("{it}: {{ ")).collect();
            format!("{open}{last}: {value}{}", " }".repeat(sections.len()))
        };
        let mistake = format!("{key}: 1ms is too short; make it {shortest} at least{or_zero}");
        check(&at("1ms"), &[&mistake]);
        check(&at(shortest), &[]);
        match or_zero {
            "" => check(&at("0s"), &[&format!("{key}: must be more than zero")]),
            _ => check(&at("0s"), &[]),
        }
    }
    check("defaults: { watchDisconnectGrace: 1ms }", &[]);
    check(
        "connections: { backoffMax: 9ms }",
        &["connections.backoffMax: 9ms is too short; make it 10ms at least"],
    );
    check(
        "overrides: [ { cluster: a, probe: { interval: 99ms } } ]",
        &["overrides[0].probe.interval: 99ms is too short; make it 100ms at least"],
    );
}

/// The condition RemoteConnectionProbe of a cluster that is well would be False between two probes.
#[test]
fn a_grace_period_that_its_probes_cannot_keep_is_refused() {
    let mistake = |path: &str, [grace, interval, timeout, least]: [&str; 4]| {
        format!(
            "{path}: remoteConnectionGracePeriod is {grace}, less than probe.interval ({interval}) and probe.timeout ({timeout}) \
             together: a cluster that is well would be told not to be; make it {least} at least, or probe more often"
        )
    };
    let refused = |rest: &str, mistakes: &[String]| {
        let mistakes: Vec<_> = mistakes.iter().map(String::as_str).collect();
        check(rest, &mistakes);
    };
    refused(
        "defaults: { remoteConnectionGracePeriod: 14s }",
        &[mistake(
            "defaults.remoteConnectionGracePeriod",
            ["14s", "10s", "5s", "15s"],
        )],
    );
    refused("defaults: { remoteConnectionGracePeriod: 15s }", &[]);
    refused(
        "defaults: { probe: { interval: 1h } }",
        &[mistake(
            "defaults.probe.interval",
            ["50s", "60m", "5s", "3605s"],
        )],
    );
    // Merged with what is below it, whichever says what.
    refused(
        "defaults: { remoteConnectionGracePeriod: 2m }\noverrides: [ { cluster: a, probe: { interval: 2m } } ]",
        &[mistake(
            "overrides[0].probe.interval",
            ["2m", "2m", "5s", "125s"],
        )],
    );
    refused(
        "overrides: [ { cluster: a, probe: { timeout: 50s } }, { cluster: b, remoteConnectionGracePeriod: 1ms } ]",
        &[
            mistake("overrides[0].probe.timeout", ["50s", "10s", "50s", "60s"]),
            mistake(
                "overrides[1].remoteConnectionGracePeriod",
                ["1ms", "10s", "5s", "15s"],
            ),
        ],
    );
    // One override stands on another that holds wherever it does, before it or after.
    refused(
        "overrides: [ { cluster: '*', remoteConnectionGracePeriod: 2h }, { cluster: edge-*, probe: { interval: 1h } } ]",
        &[],
    );
    refused(
        "overrides: [ { cluster: edge-*, probe: { interval: 1h } }, { cluster: '*', remoteConnectionGracePeriod: 2h } ]",
        &[],
    );
    refused(
        "overrides: [ { cluster: edge-*, remoteConnectionGracePeriod: 2h }, { cluster: '*', probe: { interval: 1h } } ]",
        &[mistake(
            "overrides[1].probe.interval",
            ["50s", "60m", "5s", "3605s"],
        )],
    );
    // Nothing is said twice.
    refused(
        "defaults: { probe: { interval: 1m } }\noverrides: [ { cluster: a, connectTimeout: 1s } ]",
        &[mistake(
            "defaults.probe.interval",
            ["50s", "60s", "5s", "65s"],
        )],
    );
}

#[test]
fn overrides_that_are_wrong_only_together_keep_it_long_enough() {
    let file = parse(&document(
        "overrides: [ { cluster: '*-1', probe: { interval: 40s } }, { cluster: edge-*, remoteConnectionGracePeriod: 15s } ]",
    ))
    .unwrap();
    let config = Config {
        overrides: file.overrides,
        ..from_args(&ServeArgs::default(), &[("HOME", "/home/a")]).unwrap()
    };
    let grace = |name: &str| config.timing(name).remote_connection_grace_period.as_secs();
    assert_eq!(
        ["a", "a-1", "edge-2", "edge-1"].map(grace),
        [50, 50, 15, 45]
    );
}

/// One function judges for both commands.
#[test]
fn the_start_refuses_what_a_check_refuses() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("config.yaml");
    let home = [("HOME", "/home/a")];
    for rest in [
        "defaults: { remoteConnectionGracePeriod: 1s }",
        "cache: { selfCheckInterval: 1ms }",
    ] {
        std::fs::write(&path, document(rest)).unwrap();
        let args = ServeArgs {
            config: Some(path.clone()),
            ..ServeArgs::default()
        };
        let served = from_args(&args, &home).unwrap_err();
        let checked = check_file(&path, &|name| (name == "HOME").then(|| "/home/a".into()));
        assert_eq!(served, checked.mistakes, "{rest}");
    }
}

//! Whether a cluster that is well would be told to be so: its probes must come more often than their absence counts.

use crate::config::{ClusterDefaults, ClusterOverride, duration};

/// Where `remoteConnectionGracePeriod` is too short for the probes beside it, with the path of the key to blame. `said` is
/// what the file says of `defaults`. Of overrides each is judged with those that hold wherever it does.
pub(super) fn mistakes(
    said: &ClusterOverride,
    defaults: &ClusterDefaults,
    overrides: &[ClusterOverride],
) -> Vec<(String, String)> {
    let mut mistakes = Vec::new();
    let mut judge = |path: &str, said: &ClusterOverride, merged: &ClusterDefaults| {
        if let (Some(key), Some(problem)) = (to_blame(said), problem(merged)) {
            mistakes.push((format!("{path}.{key}"), problem));
        }
    };
    judge("defaults", said, defaults);
    for (i, over) in overrides.iter().enumerate() {
        let mut merged = defaults.clone();
        for other in overrides.iter().filter(|it| it.matches(&over.cluster)) {
            other.apply(&mut merged);
        }
        judge(&format!("overrides[{i}]"), over, &merged);
    }
    mistakes
}

/// The first key that has a part in it; none where it says nothing of the matter.
fn to_blame(said: &ClusterOverride) -> Option<&'static str> {
    let keys = [
        (
            "remoteConnectionGracePeriod",
            said.remote_connection_grace_period,
        ),
        ("probe.interval", said.probe_interval),
        ("probe.timeout", said.probe_timeout),
    ];
    let said = keys.into_iter().find(|(_, value)| value.is_some());
    said.map(|(key, _)| key)
}

fn problem(merged: &ClusterDefaults) -> Option<String> {
    let least = merged.shortest_grace();
    if merged.remote_connection_grace_period >= least {
        return None;
    }
    Some(format!(
        "remoteConnectionGracePeriod is {}, less than probe.interval ({}) and probe.timeout ({}) together: a cluster that is \
         well would be told not to be; make it {} at least, or probe more often",
        duration::text(merged.remote_connection_grace_period),
        duration::text(merged.probe_interval),
        duration::text(merged.probe_timeout),
        duration::text(least),
    ))
}

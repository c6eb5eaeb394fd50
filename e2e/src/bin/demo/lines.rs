//! What the demo says first: what runs, how it fails, and lines to try in another terminal. Whatever a line says of its
//! cluster is so at any time.

use std::net::SocketAddr;
use std::path::Path;

use crate::outages::{DOWN, FEW, Outages, TURN, Turns, UP};
use crate::screen::ASKED;

/// What runs.
pub(crate) struct Setup<'a> {
    pub(crate) names: &'a [String],
    pub(crate) objects: usize,
    pub(crate) outages: &'a Outages,
    pub(crate) proxy: &'a str,
    pub(crate) admin: SocketAddr,
    pub(crate) state_dir: &'a str,
    pub(crate) kubeconfig: &'a str,
}

/// The cluster that the lines about outages name.
enum Victim<'a> {
    /// It may go down and come back.
    AtTimes(&'a str),
    /// It is a black hole all the time.
    Always(&'a str),
    /// No cluster fails.
    None,
}

/// All of it.
pub(crate) fn introduction(setup: &Setup<'_>) -> String {
    let Setup {
        names,
        objects,
        outages,
        proxy,
        admin,
        state_dir,
        kubeconfig,
    } = setup;
    let clusters = plural(names.len(), "simulated cluster");
    let name = &names[0];
    let fails = how_they_fail(outages, names);
    let fleet = about_the_fleet(setup);
    let workspace = workspace().display();
    let release = if cfg!(debug_assertions) {
        ""
    } else {
        " --release"
    };
    format!(
        "{clusters} of {objects} objects each, behind {proxy}\n\
         The clusters are simulated: no logs, exec, explain or server-side apply.\n\
         {fails}\n\
         In another terminal:\n\n  \
         cd {workspace}\n  \
         export KUBECONFIG={kubeconfig}\n  \
         alias fleetcache='cargo run -q{release} --bin fleetcache --'\n  \
         kubectl config get-contexts\n\n  \
         # the first read fills the cache, the next are answered from it; plain tables (no -o) go live for now\n  \
         kubectl --context {name} get pods -A -o json | head\n  \
         kubectl --context {name} get pods -A -o yaml | head\n  \
         kubectl --context {name} get pods -A -o name\n  \
         kubectl --context {name} get pods -A -o name -v=8 2>&1 | grep -i cache-status | tail -n 1      # hit: from memory\n  \
         kubectl --context {name} -n shop get pods --watch -o name      # from memory too\n  \
         kubectl --context {name} create configmap hello --from-literal=it=works\n  \
         kubectl --context {name} get configmap hello -o yaml\n\n\
         {fleet}\n  \
         # the headers tell whether an answer came from memory, and how old it is\n  \
         curl -sS -A demo -o /dev/null -D - --cacert {state_dir}/ca.crt -H \"Authorization: Bearer $(cat {state_dir}/token)\" {proxy}/clusters/{name}/{ASKED}\n  \
         curl http://{admin}/metrics\n\n\
         Ctrl-C ends it all. FLEETCACHE_LOG=fleetcache::access=debug cargo demo 2>demo.log logs a line per request, with its reason.\n\n"
    )
}

/// The fleet as an operator sees it.
fn about_the_fleet(setup: &Setup<'_>) -> String {
    let Setup {
        names,
        outages,
        state_dir,
        ..
    } = setup;
    let name = &names[0];
    // All of a thousand would be all that is on the screen.
    let (head, watch) = if names.len() > FEW {
        (" | head -n 20", "--watch-only")
    } else {
        ("", "--watch")
    };
    let (victim, wait, ask) = match victim(outages, names) {
        Victim::AtTimes(it) => (
            it,
            format!("Connected cc/{it} --timeout=60s      # until {it} is up"),
            format!(
                "  time kubectl --context {it} get nodes      # an answer at once, up or known to be down\n"
            ),
        ),
        Victim::Always(it) => (
            it,
            format!("Connected=False cc/{it} --timeout=60s      # until {it} is known to be down"),
            format!(
                "  time kubectl --context {it} get nodes      # {it} is a black hole all the time: an answer at once\n"
            ),
        ),
        Victim::None => (
            name.as_str(),
            format!("Connected cc/{name} --timeout=60s      # until {name} is up"),
            String::new(),
        ),
    };
    format!(
        "  # the fleet is an API too: a cluster that goes down or comes back is an event\n  \
         kubectl --context fleet get cc{head}\n  \
         kubectl --context fleet get cc {watch}\n  \
         kubectl --context fleet get cc --no-headers -o custom-columns=S:.status.state,R:.status.reason | sort | uniq -c\n  \
         kubectl --context fleet wait --for=condition={wait}\n  \
         fleetcache status --state-dir {state_dir}{head}\n  \
         fleetcache refresh {victim} --state-dir {state_dir}      # connects anew at once, and tells what became of it\n  \
         fleetcache why /clusters/{name}/api/v1/pods --state-dir {state_dir}      # from memory? if not, why\n\
         {ask}"
    )
}

fn victim<'a>(outages: &Outages, names: &'a [String]) -> Victim<'a> {
    match outages {
        Outages::Turns(Turns {
            gone: Some(gone), ..
        }) => Victim::Always(&names[*gone]),
        Outages::Turns(turns) if turns.down() == 0 => Victim::None,
        Outages::Turns(turns) => Victim::AtTimes(&names[turns.failing.start]),
        // What it says may be anything.
        Outages::Script(_) => Victim::AtTimes(&names[names.len() - 1]),
    }
}

/// How clusters will fail, as lines; nothing where none will.
fn how_they_fail(outages: &Outages, names: &[String]) -> String {
    let turns = match outages {
        Outages::Turns(turns) if turns.down() == 0 => return String::new(),
        Outages::Turns(turns) => turns,
        Outages::Script(script) => {
            let steps = plural(script.steps().len(), "step");
            return format!(
                "They fail as the script says, in {steps}; what is asked of one that is down is answered with a 503.\n"
            );
        }
    };
    let first = &names[0];
    let first = if turns.failing.start == 0 {
        "What is asked of one that is down is answered with a 503.".to_owned()
    } else {
        format!("{first} is always up.")
    };
    if names.len() <= FEW {
        let (up, down_for) = (UP.as_secs(), DOWN.as_secs());
        let next = match turns.at_a_time {
            1 => "the next cluster fails".to_owned(),
            down => format!("the next {down} clusters fail"),
        };
        return format!("When all were up for {up} s, {next} for {down_for} s. {first}\n");
    }
    let (down, back, turn) = (turns.down(), turns.back, TURN.as_secs());
    let come_back = match back {
        0 => String::new(),
        1 => format!("Every {turn} s one of them comes back, and another one fails. "),
        _ => format!("Every {turn} s {back} of them come back, and as many others fail. "),
    };
    if down == 1 {
        return format!(
            "{} is a black hole all the time. {first}\n",
            names[names.len() - 1]
        );
    }
    format!(
        "{down} of them are down at a time: about half of those are black holes, the others refuse, accept and never answer, show \
         the certificate of another CA, or answer 401 or 503.\n\
         {come_back}{first}\n"
    )
}

/// Where the proxy's own commands are run from: they are built already, but for the last step.
fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

fn plural(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

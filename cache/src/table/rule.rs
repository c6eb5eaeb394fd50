//! What the cell of a column says of an object, where that depends on the time.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::age;
use super::instant::Instant;
use super::json_path::{JsonPath, text};
use super::restarts::{self, Restarts};

/// What Go's default of a time is printed as, where times are printed as they are.
const NEVER: &str = "0001-01-01T00:00:00Z";
const UNKNOWN: &str = "<unknown>";
const NONE: &str = "<none>";

/// How the cells of a column are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// They do not depend on the time.
    Timeless,
    /// Since the object was made.
    Age,
    /// When it was made.
    CreatedAt,
    /// Of a Pod: how often its containers were started again, and when last.
    Restarts,
    /// Of a Job: from its start to its end, or to now.
    Duration,
    /// Of a CronJob: since its last Job.
    LastSchedule,
    /// Of an event.
    FirstSeen,
    /// Of an event.
    LastSeen,
    /// Of a taint of devices: since it is there.
    TimeAdded,
    /// Of a question about pools of devices: since it was answered.
    Completed,
    /// Of a custom resource: since what stands there.
    Date(JsonPath),
}

/// What a cell is to say of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told<'a> {
    /// Whatever the server says.
    AsSent,
    Null,
    Text(Cow<'a, str>),
    Since(Instant),
    Restarts(Restarts),
}

/// An object's parts, as far as rules of built-in kinds look at them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    // Of events, in the names of both groups.
    #[serde(borrow, alias = "deprecatedFirstTimestamp")]
    first_timestamp: Option<&'a RawValue>,
    #[serde(borrow, alias = "deprecatedLastTimestamp")]
    last_timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    event_time: Option<&'a RawValue>,
    #[serde(borrow)]
    series: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    creation_timestamp: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobStatus {
    start_time: Option<Instant>,
    completion_time: Option<Instant>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CronJobStatus {
    last_schedule_time: Option<Instant>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    last_observed_time: Option<Instant>,
}

#[derive(Default, Deserialize)]
struct TaintSpec {
    #[serde(default)]
    taint: Taint,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Taint {
    time_added: Option<Instant>,
}

#[derive(Default, Deserialize)]
struct Conditions<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    #[serde(rename = "type", borrow, default)]
    condition: Cow<'a, str>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
    last_transition_time: Option<Instant>,
}

impl Rule {
    /// What the cell is to say of an object; `None` where the object cannot be read as one of its kind. `is_older_server` is
    /// about one up to 1.27.
    pub(super) fn tell<'a>(&self, object: &'a RawValue, is_older_server: bool) -> Option<Told<'a>> {
        if let Self::Timeless = self {
            return Some(Told::AsSent);
        }
        if let Self::Date(path) = self {
            return Some(date(path.first(object)));
        }
        let object: Object<'a> = serde_json::from_str(object.get()).ok()?;
        object.tell(self, is_older_server)
    }
}

impl<'a> Object<'a> {
    fn tell(self, rule: &Rule, is_older_server: bool) -> Option<Told<'a>> {
        Some(match rule {
            Rule::Timeless | Rule::Date(_) => Told::AsSent,
            Rule::Age => match self.metadata.creation_timestamp {
                Some(time) => since(Some(Instant::parse(&time)?)),
                None => since(None),
            },
            Rule::CreatedAt => {
                let time = self.metadata.creation_timestamp;
                Told::Text(time.unwrap_or(Cow::Borrowed(NEVER)))
            }
            Rule::Restarts => {
                let spec: restarts::Spec<'_> = part(self.spec)?;
                let status: restarts::Status<'_> = part(self.status)?;
                Told::Restarts(if is_older_server {
                    Restarts::of_older_server(&status)
                } else {
                    Restarts::of(&spec, &status)
                })
            }
            Rule::Duration => {
                let status: JobStatus = part(self.status)?;
                match (status.start_time, status.completion_time) {
                    (None, _) => Told::Text(Cow::Borrowed("")),
                    (Some(start), None) => Told::Since(start),
                    (Some(_), Some(_)) => Told::AsSent,
                }
            }
            Rule::LastSchedule => {
                let status: CronJobStatus = part(self.status)?;
                since_or(status.last_schedule_time, NONE)
            }
            Rule::FirstSeen => since(self.first_seen()?),
            Rule::LastSeen => match self.series {
                Some(series) => {
                    let series: Series = serde_json::from_str(series.get()).ok()?;
                    since(series.last_observed_time)
                }
                None => match time(self.last_timestamp)? {
                    None => since(self.first_seen()?),
                    last => since(last),
                },
            },
            Rule::TimeAdded => {
                let spec: TaintSpec = part(self.spec)?;
                since_or(spec.taint.time_added, "")
            }
            Rule::Completed => {
                let Conditions { conditions } = part(self.status)?;
                let mut conditions = conditions.iter().flatten();
                let ended = conditions.find(|it| {
                    matches!(&*it.condition, "Complete" | "Failed") && it.status == "True"
                });
                match ended.filter(|it| it.condition == "Complete") {
                    Some(completed) => since(completed.last_transition_time),
                    None => Told::Text(Cow::Borrowed(NONE)),
                }
            }
        })
    }

    fn first_seen(&self) -> Option<Option<Instant>> {
        match time(self.first_timestamp)? {
            None => time(self.event_time),
            first => Some(first),
        }
    }
}

/// A part of an object, or an empty one.
fn part<'a, T: Deserialize<'a> + Default>(part: Option<&'a RawValue>) -> Option<T> {
    match part {
        Some(part) => serde_json::from_str(part.get()).ok(),
        None => Some(T::default()),
    }
}

/// A time that was set; the outer `None` is for what is no time.
fn time(time: Option<&RawValue>) -> Option<Option<Instant>> {
    let Some(time) = time else { return Some(None) };
    let instant: Instant = serde_json::from_str(time.get()).ok()?;
    Some(instant.if_set())
}

fn since<'a>(time: Option<Instant>) -> Told<'a> {
    since_or(time, UNKNOWN)
}

/// `absent` is said where there is no time at all; one that was not set is not known.
fn since_or<'a>(time: Option<Instant>, absent: &'static str) -> Told<'a> {
    match time.map(Instant::if_set) {
        None => Told::Text(Cow::Borrowed(absent)),
        Some(None) => Told::Text(Cow::Borrowed(UNKNOWN)),
        Some(Some(time)) => Told::Since(time),
    }
}

/// What the server makes of a value in a column of type `date`.
fn date(value: Option<&RawValue>) -> Told<'_> {
    let Some(value) = value.filter(|value| value.get().starts_with('"')) else {
        return Told::Null;
    };
    match text(value).as_deref() {
        Some("" | "null") => since(None),
        Some(time) => match Instant::parse(time) {
            Some(time) => since(Some(time)),
            None => Told::Text(Cow::Borrowed(age::INVALID)),
        },
        None => Told::Text(Cow::Borrowed(age::INVALID)),
    }
}

//! The options of a GET, LIST or WATCH, read and refused as kube-apiserver reads and refuses them, in its order.

use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use fleetcache_cache::continue_token::{ContinueToken, Style};
use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::selector::Selector;
use serde::Deserialize;

use super::refusal::{FieldError, Refusal};
use super::selectors;
use crate::decision::watch::{Begin, CachedWatch};
use crate::decision::{CachedRead, Freshness};
use crate::query::query_pairs;
use crate::writing::Writing;

const MATCH: &str = "resourceVersionMatch";

/// Go takes no notice of bits that are left over at the end.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The options as they stand in the query: the first of several counts.
#[derive(Debug, Default)]
struct Options {
    version: String,
    version_match: String,
    continue_token: String,
    labels: String,
    fields: String,
    limit: Option<i64>,
    timeout: Option<i64>,
    initial_events: Option<bool>,
    bookmarks: bool,
}

/// The options of a GET of one object; all but the version mean nothing.
///
/// # Errors
/// The version is none.
pub(super) fn get(query: &str) -> Result<CachedRead, Refusal> {
    check_timeout(query)?;
    let version = first(query, "resourceVersion").unwrap_or_default();
    let freshness = match version.as_str() {
        "" => Freshness::Latest,
        "0" => Freshness::Any,
        version => {
            Freshness::NotOlderThan(parse_version(version).map_err(Refusal::InvalidVersion)?)
        }
    };
    Ok(read(freshness, None, None, Selector::default()))
}

/// The options of a LIST.
///
/// # Errors
/// The server would refuse them.
pub(super) fn list(query: &str) -> Result<CachedRead, Refusal> {
    check_timeout(query)?;
    let options = Options::of(query)?;
    options.check_list()?;
    let selector = selectors::check(&options.labels, &options.fields)?;
    let limit = options
        .limit
        .filter(|limit| *limit > 0)
        .map(i64::unsigned_abs);
    if !options.continue_token.is_empty() {
        let token = parse_token(&options.continue_token)?;
        let is_any = matches!(&*options.version, "" | "0");
        if !is_any {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Refusal::BadRequest(message.to_owned()));
        }
        let freshness = token
            .resource_version
            .map_or(Freshness::Latest, Freshness::Exact);
        // At resourceVersion 0 the limit means nothing, in whatever page.
        let limit = limit.filter(|_| options.version.is_empty());
        return Ok(read(freshness, limit, Some(token), selector));
    }
    let parse = |version: &str| {
        parse_version(version)
            .map_err(|why| Refusal::BadRequest(format!("invalid resource version: {why}")))
    };
    let freshness = match (&*options.version_match, &*options.version) {
        (_, "") => Freshness::Latest,
        (_, "0") => Freshness::Any,
        ("Exact", version) => Freshness::Exact(parse(version)?),
        // With a limit alone the version is meant exactly, unless one object is asked for.
        ("", version) if limit.is_some() && !selector.names_one("metadata.name") => {
            Freshness::Exact(parse(version)?)
        }
        (_, version) => Freshness::NotOlderThan(parse(version)?),
    };
    // One object is no page.
    let is_one = selector.names_one("metadata.name");
    let limit = limit.filter(|_| freshness != Freshness::Any && !is_one);
    Ok(read(freshness, limit, None, selector))
}

/// The options of a WATCH; `None` of one that is over at once.
///
/// # Errors
/// The server would refuse them.
pub(super) fn watch(query: &str) -> Result<Option<CachedWatch>, Refusal> {
    let mut options = Options::of(query)?;
    let is_legacy = options.initial_events.is_none() && options.version_match.is_empty();
    if is_legacy && matches!(&*options.version, "" | "0") {
        options.initial_events = Some(true);
        options.version_match = "NotOlderThan".to_owned();
    }
    options.check_watch()?;
    let selector = selectors::check(&options.labels, &options.fields)?;
    let freshness = match &*options.version {
        "" => Freshness::Latest,
        "0" => Freshness::Any,
        version => {
            Freshness::NotOlderThan(parse_version(version).map_err(Refusal::InvalidVersion)?)
        }
    };
    let begin = match (options.initial_events, freshness) {
        (Some(true), freshness) => Begin::State {
            freshness,
            streaming_list: !is_legacy,
        },
        (_, Freshness::NotOlderThan(version)) => Begin::After(version),
        (_, freshness) => Begin::Now(freshness),
    };
    let timeout = options.timeout.unwrap_or_default();
    if timeout < 0 {
        return Ok(None);
    }
    let timeout = Duration::from_secs(timeout.unsigned_abs().min(LONGEST));
    Ok(Some(CachedWatch {
        begin,
        bookmarks: options.bookmarks,
        timeout: (!timeout.is_zero()).then_some(timeout),
        max_age: None,
        selector,
        writing: Writing::default(),
    }))
}

/// Seconds; no watch is asked to last longer.
const LONGEST: u64 = 1_000_000_000;

fn read(
    freshness: Freshness,
    limit: Option<u64>,
    from: Option<ContinueToken>,
    selector: Selector,
) -> CachedRead {
    CachedRead {
        freshness,
        max_age: None,
        limit,
        from,
        by_index: false,
        writing: Writing::default(),
        selector,
    }
}

impl Options {
    fn of(query: &str) -> Result<Self, Refusal> {
        let text = |key| first(query, key).unwrap_or_default();
        let number = |key| first(query, key).map(|it| parse_int(&it)).transpose();
        let boolean = |key| {
            let value = first(query, key);
            value.map(|it| it != "0" && !it.eq_ignore_ascii_case("false"))
        };
        let options = Self {
            timeout: number("timeoutSeconds")?,
            limit: number("limit")?,
            version: text("resourceVersion"),
            version_match: text(MATCH),
            continue_token: text("continue"),
            labels: text("labelSelector"),
            fields: text("fieldSelector"),
            initial_events: boolean("sendInitialEvents"),
            bookmarks: boolean("allowWatchBookmarks").unwrap_or_default(),
        };
        // With the other options, whatever is said of these; whether a kind has the fields comes later.
        selectors::read(&options.labels, &options.fields)?;
        Ok(options)
    }

    fn check_list(&self) -> Result<(), Refusal> {
        let mut errors = Vec::new();
        if !self.version_match.is_empty() {
            if self.version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(MATCH, why));
            }
            if !self.continue_token.is_empty() {
                errors.push(FieldError::forbidden(MATCH, WITH_CONTINUE));
            }
            if !matches!(&*self.version_match, "Exact" | "NotOlderThan") {
                let supported = r#""Exact", "NotOlderThan", """#;
                errors.push(FieldError::unsupported(
                    MATCH,
                    &self.version_match,
                    supported,
                ));
            }
            if self.version_match == "Exact" && self.version == "0" {
                let why = r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
                errors.push(FieldError::forbidden(MATCH, why));
            }
        }
        if self.initial_events.is_some() {
            let why = "sendInitialEvents is forbidden for list";
            errors.push(FieldError::forbidden("sendInitialEvents", why));
        }
        none_of(errors)
    }

    fn check_watch(&self) -> Result<(), Refusal> {
        let mut errors = Vec::new();
        let is_not_older = self.version_match == "NotOlderThan";
        if self.initial_events.is_some() && !is_not_older {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if !self.version_match.is_empty() {
            if self.initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(MATCH, why));
            }
            if !is_not_older {
                let supported = r#""NotOlderThan""#;
                errors.push(FieldError::unsupported(
                    MATCH,
                    &self.version_match,
                    supported,
                ));
            }
            if !self.continue_token.is_empty() {
                errors.push(FieldError::forbidden(MATCH, WITH_CONTINUE));
            }
        }
        none_of(errors)
    }
}

const WITH_CONTINUE: &str = "resourceVersionMatch is forbidden when continue is provided";

fn none_of(errors: Vec<FieldError>) -> Result<(), Refusal> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Refusal::InvalidOptions(errors))
    }
}

fn first(query: &str, key: &str) -> Option<String> {
    let mut pairs = query_pairs(query);
    pairs
        .find(|(found, _)| found == key)
        .map(|(_, value)| value.into_owned())
}

/// A number as Go reads it.
fn parse_int(text: &str) -> Result<i64, Refusal> {
    text.parse().map_err(|_| {
        let why = go_number_error("ParseInt", text, text.trim_start_matches(['+', '-']));
        Refusal::BadRequest(why)
    })
}

/// A version as Go reads it: leading zeros are nothing to it.
fn parse_version(text: &str) -> Result<ResourceVersion, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_number => Ok(ResourceVersion::from_number(number)),
        _ => {
            let why = go_number_error("ParseUint", text, text);
            Err(format!("resourceVersion: Invalid value: {text:?}: {why}"))
        }
    }
}

fn go_number_error(function: &str, text: &str, digits: &str) -> String {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = match is_number {
        true => "value out of range",
        false => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

/// The time for a request but a watch: there is none here, but it is read all the same.
fn check_timeout(query: &str) -> Result<(), Refusal> {
    match first(query, "timeout") {
        Some(timeout) if !timeout.is_empty() => check_duration(&timeout),
        _ => Ok(()),
    }
}

fn check_duration(text: &str) -> Result<(), Refusal> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let number = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = unsigned;
    let invalid = |why: String| {
        let message = format!("invalid timeout specified in the request URL - time: {why}");
        Err(Refusal::BadRequest(message))
    };
    if unsigned == "0" {
        return Ok(());
    }
    if unsigned.is_empty() {
        return invalid(format!("invalid duration {text:?}"));
    }
    while !rest.is_empty() {
        let digits = rest.find(|c| !number(c)).unwrap_or(rest.len());
        if digits == 0 || rest[..digits].bytes().filter(u8::is_ascii_digit).count() == 0 {
            return invalid(format!("invalid duration {text:?}"));
        }
        rest = &rest[digits..];
        let unit = rest.find(number).unwrap_or(rest.len());
        match &rest[..unit] {
            "" => return invalid(format!("missing unit in duration {text:?}")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => rest = &rest[unit..],
            unit => return invalid(format!("unknown unit {unit:?} in duration {text:?}")),
        }
    }
    Ok(())
}

/// A token as the server reads it.
fn parse_token(text: &str) -> Result<ContinueToken, Refusal> {
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Fields {
        v: String,
        rv: i64,
        start: String,
    }
    let invalid = |why: String| {
        let message = format!("invalid continue token: continue key is not valid: {why}");
        Refusal::BadRequest(message)
    };
    let json = BASE64.decode(text).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
                text.len() / 4 * 4
            }
        };
        invalid(format!("illegal base64 data at input byte {at}"))
    })?;
    let fields: Fields = serde_json::from_slice(&json).map_err(|_| {
        let first = json.first().map_or(' ', |byte| char::from(*byte));
        invalid(format!(
            "invalid character {first:?} looking for beginning of value"
        ))
    })?;
    if fields.v != "meta.k8s.io/v1" {
        let why = format!(
            "server does not recognize this encoded version {}",
            fields.v
        );
        return Err(invalid(why));
    }
    if fields.rv == 0 {
        let why = "incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
        return Err(invalid(why.to_owned()));
    }
    if fields.start.is_empty() {
        let why = "encoded start key empty (version meta.k8s.io/v1)";
        return Err(invalid(why.to_owned()));
    }
    let (start, style) = match fields.start.strip_prefix('/') {
        Some(start) => (start.to_owned(), Style::WatchCache),
        None => (fields.start.clone(), Style::Etcd),
    };
    if start.split('/').any(|it| matches!(it, "." | "..")) {
        return Err(invalid(fields.start));
    }
    let version = u64::try_from(fields.rv).ok();
    Ok(ContinueToken {
        resource_version: version.map(ResourceVersion::from_number),
        start,
        style,
    })
}

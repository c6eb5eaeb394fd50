//! The options of LIST, WATCH and GET, checked as the apiserver checks them.

use super::continue_token::ContinueToken;
use super::query::Query;
use super::resource::Resource;
use super::selector::Selector;
use super::status::Status;

/// Options that passed the first checks; the resourceVersion is parsed where it is used, since a bad one is
/// another error for each verb.
#[derive(Debug)]
pub(super) struct ListOptions {
    pub(super) selector: Selector,
    pub(super) watch: bool,
    pub(super) bookmarks: bool,
    /// Set only together with `NotOlderThan`.
    pub(super) initial_events: Option<bool>,
    pub(super) timeout_seconds: Option<i64>,
    pub(super) resource_version: String,
    exact: bool,
    not_older_than: bool,
    limit: Option<usize>,
    continue_token: Option<String>,
}

/// Which state a read shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadAt {
    /// What is in the cache; in this cluster that is the newest.
    Any,
    /// The newest.
    Newest,
    /// A state that is at least this new.
    NotOlderThan(u64),
    /// The state of this revision.
    Exact(u64),
}

/// A LIST after all checks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListPlan {
    pub(super) at: ReadAt,
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

impl ListOptions {
    /// `watch_list` is whether the server knows `sendInitialEvents`.
    pub(super) fn parse(
        resource: &Resource,
        query: &Query,
        watch_list: bool,
    ) -> Result<Self, Status> {
        let limit = query.integer("limit").map_err(Status::bad_request)?;
        let timeout_seconds = query
            .integer("timeoutSeconds")
            .map_err(Status::bad_request)?;
        let watch = query.flag("watch");
        let initial_events = query
            .get("sendInitialEvents")
            .map(|_| query.flag("sendInitialEvents"));
        validate(query, watch, watch_list)?;
        let resource_version = query.get("resourceVersion").unwrap_or_default().to_owned();
        let selector = Selector::parse(
            resource,
            query.get("labelSelector"),
            query.get("fieldSelector"),
        )?;
        let match_is = |name: &str| query.get("resourceVersionMatch") == Some(name);
        Ok(Self {
            selector,
            watch,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_events,
            timeout_seconds,
            exact: match_is("Exact"),
            not_older_than: match_is("NotOlderThan"),
            limit: limit
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| *limit > 0),
            continue_token: query.text("continue").map(str::to_owned),
            resource_version,
        })
    }

    /// Where a LIST reads.
    pub(super) fn list_plan(&self) -> Result<ListPlan, Status> {
        let version = parse_version(&self.resource_version)
            .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
        if let Some(token) = &self.continue_token {
            return self.page_plan(version, token);
        }
        let at = match version {
            None => ReadAt::Newest,
            Some(0) => ReadAt::Any,
            Some(version) if self.exact => ReadAt::Exact(version),
            // Older than `resourceVersionMatch`: a page could only continue at its own revision.
            Some(version) if self.limit.is_some() && !self.not_older_than => ReadAt::Exact(version),
            Some(version) => ReadAt::NotOlderThan(version),
        };
        let limit = self.limit.filter(|_| at != ReadAt::Any);
        Ok(ListPlan {
            at,
            after: None,
            limit,
        })
    }

    fn page_plan(&self, version: Option<u64>, token: &str) -> Result<ListPlan, Status> {
        if version.is_some_and(|version| version > 0) {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(message));
        }
        let token = ContinueToken::decode(token).map_err(Status::bad_request)?;
        Ok(ListPlan {
            at: token.revision.map_or(ReadAt::Newest, ReadAt::Exact),
            after: Some(token.after),
            limit: self.limit.filter(|_| version.is_none()),
        })
    }
}

/// The resourceVersion of a GET or WATCH, in which a bad one is an unexpected error.
pub(super) fn version_or_unexpected(text: &str) -> Result<Option<u64>, Status> {
    parse_version(text).map_err(Status::unexpected)
}

fn parse_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    };
    text.parse().map(Some).map_err(invalid)
}

/// The contradictions that the apiserver answers with 422, in its order.
fn validate(query: &Query, watch: bool, watch_list: bool) -> Result<(), Status> {
    const MATCH: &str = "resourceVersionMatch";
    const INITIAL: &str = "sendInitialEvents";
    let given = query.text(MATCH);
    let initial_events = query.get(INITIAL).is_some();
    let continues = query.text("continue").is_some();
    let mut causes = Vec::new();
    let mut forbid = |field: &'static str, why: &str| {
        causes.push(("FieldValueForbidden", field, format!("Forbidden: {why}")));
    };
    if watch {
        if initial_events && given != Some("NotOlderThan") {
            forbid(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if initial_events && !watch_list {
            let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            forbid(INITIAL, why);
        }
        if given.is_some() && !initial_events {
            forbid(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
    } else {
        if given.is_some() && query.text("resourceVersion").is_none() {
            forbid(
                MATCH,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if given == Some("Exact") && query.get("resourceVersion") == Some("0") {
            forbid(
                MATCH,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        if initial_events {
            forbid(INITIAL, "sendInitialEvents is forbidden for list");
        }
    }
    if given.is_some() && continues {
        forbid(
            MATCH,
            "resourceVersionMatch is forbidden when continue is provided",
        );
    }
    let supported: &[&str] = if watch {
        &["NotOlderThan"]
    } else {
        &["Exact", "NotOlderThan", ""]
    };
    if let Some(other) = given.filter(|given| !supported.contains(given)) {
        let values: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!(
            "Unsupported value: {other:?}: supported values: {}",
            values.join(", ")
        );
        causes.push(("FieldValueNotSupported", MATCH, message));
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid_options(causes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<ListOptions, Status> {
        ListOptions::parse(Resource::named("pods").unwrap(), &Query::parse(query), true)
    }

    #[test]
    fn the_resource_version_decides_where_a_list_reads() {
        let check = |query: &str, at: ReadAt, limit: Option<usize>| {
            let expected = ListPlan {
                at,
                after: None,
                limit,
            };
            assert_eq!(
                parse(query).unwrap().list_plan().unwrap(),
                expected,
                "{query}"
            );
        };
        check("", ReadAt::Newest, None);
        check("limit=2", ReadAt::Newest, Some(2));
        check("limit=0", ReadAt::Newest, None);
        check("limit=-1", ReadAt::Newest, None);
        check("resourceVersion=0&limit=1", ReadAt::Any, None);
        check(
            "resourceVersion=0&limit=1&resourceVersionMatch=NotOlderThan",
            ReadAt::Any,
            None,
        );
        check("resourceVersion=5", ReadAt::NotOlderThan(5), None);
        check("resourceVersion=5&limit=2", ReadAt::Exact(5), Some(2));
        check(
            "resourceVersion=5&limit=2&resourceVersionMatch=NotOlderThan",
            ReadAt::NotOlderThan(5),
            Some(2),
        );
        check(
            "resourceVersion=5&resourceVersionMatch=Exact",
            ReadAt::Exact(5),
            None,
        );
    }

    #[test]
    fn contradictions_are_refused() {
        let check = |query: &str, code: u16, message: &str| {
            let error = parse(query)
                .and_then(|options| options.list_plan())
                .unwrap_err();
            assert_eq!(error.code, code, "{query}");
            assert!(
                error.message.contains(message),
                "{query}: {}",
                error.message
            );
        };
        check(
            "limit=abc",
            400,
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
        );
        check(
            "resourceVersion=abc",
            400,
            "invalid resource version: resourceVersion: Invalid value: \"abc\"",
        );
        check("continue=zzz", 400, "invalid continue token");
        check(
            "resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch is forbidden unless resourceVersion",
        );
        check(
            "resourceVersionMatch=Foo&resourceVersion=5",
            422,
            "supported values: \"Exact\", \"NotOlderThan\", \"\"",
        );
        check(
            "resourceVersionMatch=Exact&resourceVersion=0",
            422,
            "forbidden for resourceVersion \"0\"",
        );
        check(
            "watch=1&sendInitialEvents=true",
            422,
            "requires setting resourceVersionMatch to NotOlderThan",
        );
        check(
            "sendInitialEvents=true",
            422,
            "sendInitialEvents is forbidden for list",
        );
    }

    #[test]
    fn an_older_server_knows_no_initial_events() {
        let query =
            Query::parse("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        let error =
            ListOptions::parse(Resource::named("pods").unwrap(), &query, false).unwrap_err();
        assert_eq!(error.code, 422);
        assert!(
            error
                .message
                .ends_with("unless the WatchList feature gate is enabled"),
            "{}",
            error.message
        );
    }
}

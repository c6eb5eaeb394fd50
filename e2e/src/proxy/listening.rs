//! Where a proxy listens, as its log says.

use serde_json::Value;

/// The two addresses of the line `listening`, whichever of tracing's formats the log has.
pub(super) fn listening(log: &str) -> Option<(String, String)> {
    log.lines().find_map(|line| {
        if let Ok(event) = serde_json::from_str::<Value>(line) {
            let fields = if event["fields"].is_object() {
                &event["fields"]
            } else {
                &event
            };
            let said = fields["message"] == "listening";
            return said.then(|| {
                Some((
                    fields["proxy_addr"].as_str()?.to_owned(),
                    fields["admin_addr"].as_str()?.to_owned(),
                ))
            })?;
        }
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}="))?;
            Some(rest.split_whitespace().next()?.trim_matches('"').to_owned())
        };
        line.contains("listening")
            .then(|| Some((field("proxy_addr")?, field("admin_addr")?)))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(log: &str) {
        assert_eq!(
            listening(log),
            Some(("127.0.0.1:1234".to_owned(), "127.0.0.1:5678".to_owned())),
            "{log}"
        );
    }

    #[test]
    fn the_addresses_are_found_in_every_log_format() {
        check(
            r#"{"level":"INFO","fields":{"message":"listening","proxy_addr":"127.0.0.1:1234","admin_addr":"127.0.0.1:5678"}}"#,
        );
        check(
            r#"{"level":"INFO","message":"listening","proxy_addr":"127.0.0.1:1234","admin_addr":"127.0.0.1:5678"}"#,
        );
        check(
            "2026-01-01T00:00:00Z  INFO fleetcache: listening proxy_addr=127.0.0.1:1234 admin_addr=127.0.0.1:5678",
        );
        check(
            "starting\n2026 INFO listening proxy_addr=\"127.0.0.1:1234\" admin_addr=\"127.0.0.1:5678\"\nlater",
        );
    }

    #[test]
    fn other_lines_are_not_mistaken_for_it() {
        assert_eq!(
            listening("{\"fields\":{\"message\":\"connected\"}}\nlistening soon"),
            None
        );
    }
}

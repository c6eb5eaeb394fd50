//! A scrape of the admin listener.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// All series of one scrape: the name with its labels, as it was written, and the value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub(super) fn scrape(admin: &str) -> anyhow::Result<Self> {
        let (status, body) = get(admin, "/metrics")?;
        ensure!(status == 200, "/metrics answered {status}: {body}");
        Ok(Self::parse(&body))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            // A label's value may hold a space, the number after the last one cannot; nobody here writes timestamps.
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(series.collect())
    }

    /// The sum over all series of this name, or `None` where there is none.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.sum(name, &[])
    }

    /// The sum over the series of this name that have all of these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        let of_name = self
            .0
            .iter()
            .filter(|(series, _)| series.split('{').next() == Some(name));
        let matching =
            of_name.filter(|(series, _)| wanted.iter().all(|label| series.contains(label)));
        matching
            .map(|(_, value)| *value)
            .reduce(|sum, value| sum + value)
    }

    /// The series that have this label, with their labels.
    pub fn with_label(&self, label: &str, value: &str) -> Vec<&str> {
        let wanted = format!("{label}=\"{value}\"");
        let series = self.0.keys().map(String::as_str);
        series.filter(|series| series.contains(&wanted)).collect()
    }

    /// Every series whose name begins so, for messages.
    pub fn matching(&self, prefix: &str) -> String {
        let lines = self
            .0
            .iter()
            .filter(|(series, _)| series.starts_with(prefix));
        lines
            .map(|(series, value)| format!("{series} {value}"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// A blocking GET, so that a `Drop` can use it too. The answer takes microseconds.
pub(super) fn get(admin: &str, path: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect(admin)
        .with_context(|| format!("cannot connect to the admin listener at {admin}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("not an HTTP answer")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("no status")?;
    Ok((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_label() {
        let metrics = Metrics::parse(
            "# HELP x y\nfleetcache_a_total{source=\"cached\",code=\"200\"} 2\nfleetcache_a_total{source=\"live\",code=\"200\"} 3\nfleetcache_b 1.5\n",
        );
        assert_eq!(metrics.get("fleetcache_a_total"), Some(5.0));
        assert_eq!(
            metrics.sum("fleetcache_a_total", &[("source", "live")]),
            Some(3.0)
        );
        assert_eq!(metrics.get("fleetcache_b"), Some(1.5));
        assert_eq!(metrics.get("fleetcache_a"), None);
    }
}

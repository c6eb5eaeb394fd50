//! A row as it is kept, and whether the server's cells are what they are to be.

use std::fmt;

use bytes::BytesMut;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::age;
use super::instant::{Instant, is_marked, write_ages};
use super::json_path::text;
use super::restarts::Restarts;
use super::rule::{Rule, Told};

/// Seconds that a server may take from the first cell of a row to the last.
const PATIENCE: i64 = 2;

/// A row without its object: `{"cells":[…],"conditions":[…],` with instants in the place of ages.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Row(Box<[u8]>);

impl Row {
    /// `None` where a cell is not what its rule says.
    pub(super) fn new(
        rules: &[Rule],
        cells: &[&RawValue],
        conditions: Option<&str>,
        object: &RawValue,
    ) -> Option<Self> {
        let is_valid = |conditions: &&str| !is_marked(conditions);
        if conditions.is_some_and(|conditions| !is_valid(&conditions)) {
            return None;
        }
        let has_restarts = rules.contains(&Rule::Restarts);
        let row = |is_older_server| {
            let mut row = Writing {
                bytes: b"{\"cells\":[".to_vec(),
                printed: (i64::MIN, i64::MAX),
            };
            for (at, (rule, cell)) in rules.iter().zip(cells).enumerate() {
                if at > 0 {
                    row.bytes.push(b',');
                }
                row.cell(&rule.tell(object, is_older_server)?, cell)?;
            }
            row.bytes.extend_from_slice(b"],");
            if let Some(conditions) = conditions {
                row.bytes.extend_from_slice(b"\"conditions\":");
                row.bytes.extend_from_slice(conditions.as_bytes());
                row.bytes.push(b',');
            }
            Some(Self(row.bytes.into()))
        };
        row(false).or_else(|| has_restarts.then(|| row(true)).flatten())
    }

    /// Writes it as it is `now`.
    pub(crate) fn write(&self, to: &mut BytesMut, now: Timestamp) {
        write_ages(to, &self.0, now);
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Row")
            .field(&String::from_utf8_lossy(&self.0))
            .finish()
    }
}

/// A row on its way to be one.
struct Writing {
    bytes: Vec<u8>,
    /// When the server can have printed it, by the ages so far, in seconds since 1970. Ages that no moment agrees with are not of
    /// these instants.
    printed: (i64, i64),
}

impl Writing {
    fn cell(&mut self, told: &Told<'_>, cell: &RawValue) -> Option<()> {
        let is_as_told = match told {
            Told::AsSent => true,
            Told::Null => cell.get() == "null",
            Told::Text(expected) => text(cell)? == *expected,
            Told::Since(time) => return self.age(*time, "", &text(cell)?, ""),
            Told::Restarts(restarts) => return self.restarts(*restarts, cell),
        };
        if is_as_told {
            self.bytes.extend_from_slice(cell.get().as_bytes());
        }
        is_as_told.then_some(())
    }

    fn restarts(&mut self, restarts: Restarts, cell: &RawValue) -> Option<()> {
        let count = restarts.count.to_string();
        // Servers up to 1.21 tell the number alone, as one.
        if cell.get() == count {
            self.bytes.extend_from_slice(count.as_bytes());
            return Some(());
        }
        let told = text(cell)?;
        match restarts.last {
            Some(last) => self.age(last, &format!("{count} ("), &told, " ago)"),
            None => {
                self.bytes.extend_from_slice(cell.get().as_bytes());
                (told == count).then_some(())
            }
        }
    }

    /// Writes an age with what is around it in the cell.
    fn age(&mut self, time: Instant, before: &str, told: &str, after: &str) -> Option<()> {
        let words = told.strip_prefix(before)?.strip_suffix(after)?;
        let (least, most) = age::span(words)?;
        let (from, to) = self.printed;
        let from = from.max(time.seconds().saturating_add(least));
        // The second that it says has begun, and so has that of the instant.
        let to = to.min(time.seconds().saturating_add(most).saturating_add(2));
        if from > to.saturating_add(PATIENCE) {
            return None;
        }
        self.printed = (from, to);
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(before.as_bytes());
        time.mark(&mut self.bytes);
        self.bytes.extend_from_slice(after.as_bytes());
        self.bytes.push(b'"');
        Some(())
    }
}

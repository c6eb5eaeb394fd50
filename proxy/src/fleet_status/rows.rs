//! A table as text, in columns that stay where they are while more rows come.

use std::io::{self, Write};

use serde_json::Value;

/// Between two columns.
const GAP: usize = 3;

/// What was printed so far.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The columns that are shown, by their number, with their widths.
    columns: Vec<(usize, usize)>,
    /// The number of the column that says where a connection stands.
    state: Option<usize>,
}

impl Rows {
    /// Prints a table; the names of its columns only the first time. `event` is that of a watch, where it is of one.
    pub(super) fn print(
        &mut self,
        table: &Value,
        event: Option<&str>,
        to: &mut impl Write,
    ) -> io::Result<()> {
        let rows: Vec<Vec<String>> = list(&table["rows"])
            .map(|row| self.cells(row, event))
            .collect();
        if self.columns.is_empty() {
            let names: Vec<_> = list(&table["columnDefinitions"]).collect();
            let name = |at: usize| {
                names[at]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_uppercase()
            };
            let shown = (0..names.len()).filter(|at| names[*at]["priority"] == 0);
            self.state = (0..names.len()).find(|at| name(*at) == "STATE");
            self.columns = shown.map(|at| (at, name(at).len())).collect();
            self.widen(&rows);
            let head: Vec<_> = (0..names.len()).map(name).collect();
            self.print_row(&head, to)?;
        }
        self.widen(&rows);
        rows.iter().try_for_each(|row| self.print_row(row, to))
    }

    fn cells(&self, row: &Value, event: Option<&str>) -> Vec<String> {
        let mut cells: Vec<_> = list(&row["cells"]).map(text).collect();
        if event == Some("DELETED")
            && let Some(state) = self.state.and_then(|at| cells.get_mut(at))
        {
            *state = "Removed".to_owned();
        }
        cells
    }

    fn widen(&mut self, rows: &[Vec<String>]) {
        for (at, width) in &mut self.columns {
            let cells = rows.iter().filter_map(|row| row.get(*at));
            *width = cells
                .map(|cell| cell.chars().count())
                .fold(*width, usize::max);
        }
    }

    fn print_row(&self, row: &[String], to: &mut impl Write) -> io::Result<()> {
        let cell = |(at, width): &(usize, usize)| {
            let cell = row.get(*at).map(String::as_str).unwrap_or_default();
            format!("{cell:<0$}", width + GAP)
        };
        let line: String = self.columns.iter().map(cell).collect();
        writeln!(to, "{}", line.trim_end())
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_that_come_later_are_in_line() {
        let table = json!({
            "columnDefinitions": [
                {"name": "Name", "priority": 0}, {"name": "State", "priority": 0}, {"name": "Objects", "priority": 0}, {"name": "Message", "priority": 1},
            ],
            "rows": [{"cells": ["alpha", "Connected", 3, null]}, {"cells": ["b", null, 0, "no"]}],
        });
        let (mut rows, mut text) = (Rows::default(), Vec::new());
        rows.print(&table, None, &mut text).unwrap();
        let change =
            json!({"columnDefinitions": null, "rows": [{"cells": ["b", "Connected", 12, null]}]});
        rows.print(&change, Some("MODIFIED"), &mut text).unwrap();
        rows.print(&change, Some("DELETED"), &mut text).unwrap();
        let expected = "\
NAME    STATE       OBJECTS
alpha   Connected   3
b                   0
b       Connected   12
b       Removed     12
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}

//! A table as text, in columns that stay where they are while more rows come.

use std::io::{self, Write};

use serde_json::Value;

use super::choice::Choice;

/// Between two columns.
const GAP: usize = 3;

/// What was printed so far.
#[derive(Debug)]
pub(super) struct Rows {
    /// All columns are shown, and not only those of the highest priority.
    is_wide: bool,
    /// The names of the columns, until they are printed.
    names: Vec<String>,
    /// The columns that are shown, by their number, with their widths.
    columns: Vec<(usize, usize)>,
    /// The number of the column that says which cluster it is.
    name: Option<usize>,
    /// The number of the column that says where a connection stands.
    state: Option<usize>,
    reason: Option<usize>,
}

impl Rows {
    pub(super) fn new(is_wide: bool) -> Self {
        Self {
            is_wide,
            names: Vec::new(),
            columns: Vec::new(),
            name: None,
            state: None,
            reason: None,
        }
    }

    /// Prints what is to be shown of a table, the names of its columns before the first row; how many rows there were. `event`
    /// is that of a watch, where it is of one.
    pub(super) fn print(
        &mut self,
        table: &Value,
        event: Option<&str>,
        choice: &mut Choice,
        to: &mut impl Write,
    ) -> io::Result<usize> {
        if self.columns.is_empty() {
            let names: Vec<_> = list(&table["columnDefinitions"])
                .map(|column| column["name"].as_str().unwrap_or_default().to_uppercase())
                .collect();
            let priority = |at: usize| &table["columnDefinitions"][at]["priority"];
            let shown = (0..names.len()).filter(|at| self.is_wide || *priority(*at) == 0);
            let of = |wanted: &str| names.iter().position(|name| name == wanted);
            (self.name, self.state, self.reason) = (of("NAME"), of("STATE"), of("REASON"));
            self.columns = shown.map(|at| (at, names[at].len())).collect();
            self.names = names;
        }
        let rows: Vec<Vec<String>> = list(&table["rows"])
            .filter_map(|row| self.cells(row, event, choice))
            .collect();
        self.widen(&rows);
        if !rows.is_empty() && !self.names.is_empty() {
            let names = std::mem::take(&mut self.names);
            self.print_row(&names, to)?;
        }
        rows.iter().try_for_each(|row| self.print_row(row, to))?;
        Ok(rows.len())
    }

    /// The cells of a row; none where it is not to be shown.
    fn cells(&self, row: &Value, event: Option<&str>, choice: &mut Choice) -> Option<Vec<String>> {
        let mut cells: Vec<_> = list(&row["cells"]).map(text).collect();
        let cell = |at: Option<usize>| at.and_then(|at| cells.get(at)).map(String::as_str);
        let at = [self.name, self.state, self.reason];
        let [name, state, reason] = at.map(|at| cell(at).unwrap_or_default());
        let is_removed = event == Some("DELETED");
        if !choice.takes(name, (state, reason), is_removed) {
            return None;
        }
        if is_removed && let Some(state) = self.state.and_then(|at| cells.get_mut(at)) {
            *state = "Removed".to_owned();
        }
        Some(cells)
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
            "rows": [{"cells": ["alpha", "Connected", 3, null]}, {"cells": ["b", "Disconnected", 0, "no"]}],
        });
        let change =
            json!({"columnDefinitions": null, "rows": [{"cells": ["b", "Connected", 12, null]}]});
        let printed = |is_wide, only_broken| {
            let (mut rows, mut text) = (Rows::new(is_wide), Vec::new());
            let mut choice = Choice::new(only_broken);
            let mut print =
                |table, event| rows.print(table, event, &mut choice, &mut text).unwrap();
            let none = json!({"columnDefinitions": table["columnDefinitions"], "rows": []});
            assert_eq!(print(&none, None), 0);
            print(&table, None);
            print(&change, Some("MODIFIED"));
            print(&change, Some("DELETED"));
            String::from_utf8(text).unwrap()
        };
        let expected = "\
NAME    STATE          OBJECTS
alpha   Connected      3
b       Disconnected   0
b       Connected      12
b       Removed        12
";
        assert_eq!(printed(false, false), expected);
        let expected = "\
NAME    STATE          OBJECTS   MESSAGE
alpha   Connected      3
b       Disconnected   0         no
b       Connected      12
b       Removed        12
";
        assert_eq!(printed(true, false), expected);
        let expected = "\
NAME   STATE          OBJECTS
b      Disconnected   0
b      Connected      12
";
        assert_eq!(printed(false, true), expected);
    }
}

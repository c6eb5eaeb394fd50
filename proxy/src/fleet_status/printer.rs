//! What the proxy tells of the fleet, as rows or as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::choice::Choice;
use super::rows::Rows;
use super::{Format, Show};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const JSON: &str = "application/json";

/// Prints what is asked for.
#[derive(Debug)]
pub(super) struct Printer {
    /// Where it is a table.
    rows: Option<Rows>,
    choice: Choice,
    /// Only one cluster is asked for.
    is_one: bool,
    /// What is said where no row is shown.
    none: &'static str,
}

impl Printer {
    pub(super) fn new(show: &Show) -> Self {
        Self {
            rows: match show.format {
                Format::Table => Some(Rows::new(false)),
                Format::Wide => Some(Rows::new(true)),
                Format::Json => None,
            },
            choice: Choice::new(show.broken),
            is_one: show.cluster.is_some(),
            none: match show.broken {
                true => "nothing is broken",
                false => "there are no clusters",
            },
        }
    }

    /// How the proxy is asked to tell it.
    pub(super) fn accept(&self) -> &'static str {
        match self.rows {
            Some(_) => TABLE,
            None => JSON,
        }
    }

    /// A list, whole. `notes` tells where it has no row.
    pub(super) fn print_list(
        &mut self,
        list: &Value,
        to: &mut impl Write,
        notes: &mut impl Write,
    ) -> anyhow::Result<()> {
        if self.print_rows(list, to, notes)? {
            return Ok(());
        }
        let mut list = list.clone();
        if let Some(items) = list["items"].as_array_mut() {
            items.retain(|it| takes(&mut self.choice, it, false));
        }
        let shown = if self.is_one {
            &list["items"][0]
        } else {
            &list
        };
        writeln!(to, "{}", serde_json::to_string_pretty(shown)?)?;
        Ok(())
    }

    /// A list that is followed: as JSON it is an event for each object.
    pub(super) fn print_state(
        &mut self,
        list: &Value,
        to: &mut impl Write,
        notes: &mut impl Write,
    ) -> io::Result<()> {
        if self.print_rows(list, to, notes)? {
            return Ok(());
        }
        for object in list["items"].as_array().into_iter().flatten() {
            if takes(&mut self.choice, object, false) {
                writeln!(to, "{}", json!({"type": "ADDED", "object": object}))?;
            }
        }
        Ok(())
    }

    /// A list as rows, if that is how it is shown.
    fn print_rows(
        &mut self,
        list: &Value,
        to: &mut impl Write,
        notes: &mut impl Write,
    ) -> io::Result<bool> {
        let Some(rows) = &mut self.rows else {
            return Ok(false);
        };
        if rows.print(list, None, &mut self.choice, to)? == 0 {
            writeln!(notes, "{}", self.none)?;
        }
        Ok(true)
    }
    /// An event of a watch, and its line.
    pub(super) fn print_event(
        &mut self,
        event: &Value,
        line: &str,
        to: &mut impl Write,
    ) -> io::Result<()> {
        let (kind, object) = (event["type"].as_str(), &event["object"]);
        match &mut self.rows {
            Some(rows) => rows.print(object, kind, &mut self.choice, to).map(drop),
            None if takes(&mut self.choice, object, kind == Some("DELETED")) => {
                writeln!(to, "{line}")
            }
            None => Ok(()),
        }
    }
}

fn takes(choice: &mut Choice, object: &Value, is_removed: bool) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, status) = (&object["metadata"]["name"], &object["status"]);
    let (state, reason) = (text(&status["state"]), text(&status["reason"]));
    choice.takes(&text(name), (&state, &reason), is_removed)
}

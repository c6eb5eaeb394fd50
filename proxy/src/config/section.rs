//! Reads a tree of keys and values and notes every mistake with its path, instead of ending at the first. What it is
//! asked for, it can describe: the JSON Schema is what the reader asks for, and so cannot differ from it.

use std::cell::RefCell;
use std::time::Duration;

use fleetcache_auth::value_kind;
use serde_json::{Map, Value, json};

use super::Mistakes;
use super::duration;

/// A key as it is asked for.
pub(super) struct Key {
    name: &'static str,
    /// What it is for, for readers of the schema.
    about: &'static str,
    /// What holds where it is absent.
    default: Option<Value>,
    /// It must be there; what to say where it is not.
    required: Option<String>,
}

/// A key that may be absent.
pub(super) fn key(name: &'static str, about: &'static str) -> Key {
    Key {
        name,
        about,
        default: None,
        required: None,
    }
}

impl Key {
    /// What holds where it is absent, as it would be written.
    pub(super) fn default(mut self, value: impl Into<Value>) -> Self {
        self.default = Some(value.into());
        self
    }

    /// As [`Key::default`], where there is one.
    pub(super) fn maybe_default(self, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.default(value),
            None => self,
        }
    }

    /// It must be there; `hint` says what it is.
    pub(super) fn required(mut self, hint: impl Into<String>) -> Self {
        self.required = Some(hint.into());
        self
    }
}

/// The form of a text value: each of these regular expressions matches. The schema has no more than that.
pub(super) type Form = &'static [&'static str];

/// A text that is not empty.
pub(super) const NON_EMPTY: Form = &["[\\s\\S]"];

/// How short a duration may be.
#[derive(Clone, Copy)]
pub(super) struct Least {
    shortest: Duration,
    /// Nothing at all means something of its own.
    or_zero: bool,
}

/// No shorter than that.
pub(super) const fn at_least(shortest: Duration) -> Least {
    Least {
        shortest,
        or_zero: false,
    }
}

impl Least {
    /// Or zero.
    pub(super) const fn or_zero(self) -> Self {
        Self {
            or_zero: true,
            ..self
        }
    }

    fn check(self, duration: Duration) -> Result<Duration, String> {
        if duration >= self.shortest || (duration.is_zero() && self.or_zero) {
            return Ok(duration);
        }
        if duration.is_zero() {
            return Err("must be more than zero".to_owned());
        }
        let or_zero = if self.or_zero { ", or 0s" } else { "" };
        Err(format!(
            "{} is too short; make it {} at least{or_zero}",
            duration::text(duration),
            duration::text(self.shortest),
        ))
    }
}

/// Reads a document, or describes what would be read.
pub(super) struct Reader {
    mistakes: RefCell<Mistakes>,
    /// The description so far, where that is what is wanted.
    schema: Option<RefCell<Value>>,
}

impl Reader {
    /// Reads a document.
    pub(super) fn new() -> Self {
        Self {
            mistakes: RefCell::default(),
            schema: None,
        }
    }

    /// Describes; what it reads is nothing.
    pub(super) fn describing() -> Self {
        Self {
            mistakes: RefCell::default(),
            schema: Some(RefCell::default()),
        }
    }

    /// The mapping that is the whole document.
    pub(super) fn root(&self, document: Value) -> Section<'_> {
        self.describe("", mapping("object"));
        Section::new(String::new(), String::new(), document, self)
    }

    /// The mistakes found.
    pub(super) fn into_mistakes(self) -> Mistakes {
        self.mistakes.into_inner()
    }

    /// The description made.
    pub(super) fn into_schema(self) -> Value {
        self.schema.map(RefCell::into_inner).unwrap_or_default()
    }

    fn describe(&self, pointer: &str, schema: Value) {
        if let Some(whole) = &self.schema
            && let Some(place) = whole.borrow_mut().pointer_mut(pointer)
        {
            *place = schema;
        }
    }
}

fn mapping(types: impl Into<Value>) -> Value {
    json!({"type": types.into(), "additionalProperties": false, "properties": {}})
}

/// One mapping of the tree. Each key is taken out once; what is left at the end is unknown.
pub(super) struct Section<'a> {
    path: String,
    /// Where its description is in the schema.
    pointer: String,
    keys: Map<String, Value>,
    reader: &'a Reader,
}

impl<'a> Section<'a> {
    /// The mapping at `path`; a mistake, and empty, where the value is none. Null is an empty mapping.
    fn new(path: String, pointer: String, value: Value, reader: &'a Reader) -> Self {
        let keys = match value {
            Value::Object(keys) => keys,
            Value::Null => Map::new(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                let what = format!("expected a mapping, got {}", value_kind(&other));
                reader.mistakes.borrow_mut().add(path_or_root(&path), what);
                Map::new()
            }
        };
        Self {
            path,
            pointer,
            keys,
            reader,
        }
    }

    /// The path of one of its keys.
    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            return key.to_owned();
        }
        format!("{}.{key}", self.path)
    }

    /// Its own path.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether it has a value for a key, right or wrong, that nobody took yet.
    pub(super) fn says(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|value| !value.is_null())
    }

    /// Notes a mistake at one of its keys.
    pub(super) fn mistake(&self, key: &str, problem: impl Into<String>) {
        let path = self.path_of(key);
        self.reader.mistakes.borrow_mut().add(path, problem);
    }

    /// Takes a key's value out, with its name; null is absent.
    fn take(&mut self, key: Key, mut schema: Value) -> Option<(&'static str, Value)> {
        self.describe(&key, &mut schema);
        let Key { name, required, .. } = key;
        let value = self.keys.remove(name).filter(|value| !value.is_null());
        if let (None, Some(hint)) = (&value, required) {
            self.mistake(name, format!("missing; {hint}"));
        }
        Some((name, value?))
    }

    /// Adds a key to the description.
    fn describe(&self, key: &Key, schema: &mut Value) {
        let Some(whole) = &self.reader.schema else {
            return;
        };
        let absent_is_null = key.required.is_none();
        if absent_is_null {
            let mut types = match schema["type"].take() {
                Value::Array(types) => types,
                one => vec![one],
            };
            types.push("null".into());
            schema["type"] = types.into();
            if let Some(Value::Array(values)) = schema.get_mut("enum") {
                values.push(Value::Null);
            }
        }
        schema["description"] = key.about.into();
        if let Some(default) = &key.default {
            schema["default"] = default.clone();
        }
        let mut whole = whole.borrow_mut();
        let Some(mapping) = whole.pointer_mut(&self.pointer) else {
            return;
        };
        mapping["properties"][key.name] = schema.take();
        if key.required.is_some() {
            let required = mapping["required"].as_array_mut().map(std::mem::take);
            let mut required = required.unwrap_or_default();
            required.push(key.name.into());
            mapping["required"] = required.into();
        }
    }

    /// A text value of a form, read by `parse`. None where it is absent or a mistake.
    pub(super) fn text<T>(
        &mut self,
        key: Key,
        form: Form,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (name, value) = self.take(key, text_of(form))?;
        let parsed = match value {
            Value::String(text) => parse(&text),
            other => Err(format!("expected a string, got {}", value_kind(&other))),
        };
        parsed.map_err(|problem| self.mistake(name, problem)).ok()
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, key: Key) -> Option<bool> {
        let (name, value) = self.take(key, json!({"type": "boolean"}))?;
        if let Value::Bool(flag) = value {
            return Some(flag);
        }
        self.mistake(
            name,
            format!("expected a boolean, got {}", value_kind(&value)),
        );
        None
    }

    /// On or off. To some readers of YAML these words are booleans, to others, such as those of editors, they are words.
    pub(super) fn switch(&mut self, key: Key) -> Option<bool> {
        let schema = json!({"type": ["string", "boolean"], "enum": ["on", "off", true, false]});
        let (name, value) = self.take(key, schema)?;
        let problem = match &value {
            Value::Bool(is_on) => return Some(*is_on),
            Value::String(text) => match text.as_str() {
                "on" => return Some(true),
                "off" => return Some(false),
                _ => format!("{text:?} is not \"on\" or \"off\""),
            },
            other => format!("expected on or off, got {}", value_kind(other)),
        };
        self.mistake(name, problem);
        None
    }

    /// One of some words, each with what it means.
    pub(super) fn choice<T: Copy>(&mut self, key: Key, words: &[(&str, T)]) -> Option<T> {
        let meanings = words;
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let (name, value) = self.take(key, json!({"type": "string", "enum": words}))?;
        let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
        let words = words.join(" or ");
        let problem = match &value {
            Value::String(text) => match meanings.iter().find(|(word, _)| word == text) {
                Some((_, meaning)) => return Some(*meaning),
                None => format!("{text:?} is not {words}"),
            },
            other => format!("expected a string, got {}", value_kind(other)),
        };
        self.mistake(name, problem);
        None
    }

    /// A duration that is not too short. None where it is absent or a mistake.
    pub(super) fn duration(&mut self, key: Key, least: Least) -> Option<Duration> {
        let form = if least.or_zero {
            duration::FORM
        } else {
            duration::POSITIVE_FORM
        };
        let (name, value) = self.take(key, text_of(form))?;
        let parsed = match value {
            Value::String(text) => duration::parse(&text),
            // Without its unit it is a number to YAML; that it is "no string" would help nobody.
            Value::Number(number) => Err(format!("{number} is not a duration such as \"10s\"")),
            other => Err(format!("expected a string, got {}", value_kind(&other))),
        };
        let parsed = parsed.and_then(|duration| least.check(duration));
        parsed.map_err(|problem| self.mistake(name, problem)).ok()
    }

    /// A whole number of at least `min`.
    pub(super) fn number(&mut self, key: Key, min: u64) -> Option<u64> {
        let (name, value) = self.take(key, json!({"type": "integer", "minimum": min}))?;
        let problem = match &value {
            Value::Number(number) => match number.as_u64().filter(|number| *number >= min) {
                Some(number) => return Some(number),
                None => format!("expected a whole number of at least {min}, got {number}"),
            },
            other => format!("expected a number, got {}", value_kind(other)),
        };
        self.mistake(name, problem);
        None
    }

    /// A list of text values of a form, each read by `parse`; empty where absent.
    pub(super) fn texts<T>(
        &mut self,
        key: Key,
        form: Form,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let mut texts = Vec::new();
        let (name, values) = self.list(key, text_of(form));
        for (i, value) in values.into_iter().enumerate() {
            let parsed = match value {
                Value::String(text) => parse(&text),
                other => Err(format!("expected a string, got {}", value_kind(&other))),
            };
            match parsed {
                Ok(text) => texts.push(text),
                Err(problem) => self.mistake(&format!("{name}[{i}]"), problem),
            }
        }
        texts
    }

    /// A key that says yes to something; a mistake, with the reason, where it says anything else.
    pub(super) fn consent(&mut self, key: Key, why: &str) {
        let said = self.take(key, json!({"type": "boolean", "enum": [true]}));
        if let Some((name, value)) = said
            && value != true
        {
            self.mistake(name, why);
        }
    }

    /// The mapping under a key; none where absent, or where it is a mistake.
    pub(super) fn optional(&mut self, key: Key) -> Option<Self> {
        // When all is described, this is too.
        let is_there =
            self.keys.get(key.name).is_some_and(Value::is_object) || self.reader.schema.is_some();
        let section = self.section(key);
        is_there.then_some(section)
    }

    /// The mapping under a key; empty where absent.
    pub(super) fn section(&mut self, key: Key) -> Self {
        let name = key.name;
        let value = self.take(key, mapping("object"));
        let value = value.map_or(Value::Null, |(_, value)| value);
        let pointer = format!("{}/properties/{name}", self.pointer);
        Self::new(self.path_of(name), pointer, value, self.reader)
    }

    /// The mappings of a list; none where absent.
    pub(super) fn sections(&mut self, key: Key) -> Vec<Self> {
        let (name, mut values) = self.list(key, mapping("object"));
        if self.reader.schema.is_some() {
            // One, to be asked for its keys.
            values = vec![Value::Object(Map::new())];
        }
        let path = self.path_of(name);
        let pointer = format!("{}/properties/{name}/items", self.pointer);
        let mut sections = Vec::new();
        for (i, value) in values.into_iter().enumerate() {
            // Of nothing too: an item that says nothing is one whose text got lost.
            if !value.is_object() {
                let what = format!("expected a mapping, got {}", value_kind(&value));
                self.mistake(&format!("{name}[{i}]"), what);
                continue;
            }
            let path = format!("{path}[{i}]");
            sections.push(Self::new(path, pointer.clone(), value, self.reader));
        }
        sections
    }

    fn list(&mut self, key: Key, items: Value) -> (&'static str, Vec<Value>) {
        let name = key.name;
        let mut schema = json!({"type": "array"});
        schema["items"] = items;
        let values = match self.take(key, schema) {
            None => Vec::new(),
            Some((_, Value::Array(values))) => values,
            Some((_, other)) => {
                self.mistake(name, format!("expected a list, got {}", value_kind(&other)));
                Vec::new()
            }
        };
        (name, values)
    }

    /// Refuses keys that a later version will have: taking one in silence would leave its reader believing in it.
    pub(super) fn unavailable(&mut self, keys: &[&str]) {
        for key in keys {
            if self.keys.remove(*key).is_some() {
                self.mistake(key, "not available in this version");
            }
        }
    }

    /// Ends the mapping: every key that nobody took is unknown.
    pub(super) fn end(self) {
        for key in self.keys.keys() {
            self.mistake(key, "unknown key");
        }
    }
}

fn text_of(form: Form) -> Value {
    match form {
        [] => json!({"type": "string"}),
        [one] => json!({"type": "string", "pattern": one}),
        several => {
            let all: Vec<_> = several.iter().map(|it| json!({"pattern": it})).collect();
            json!({"type": "string", "allOf": all})
        }
    }
}

fn path_or_root(path: &str) -> &str {
    if path.is_empty() { "(document)" } else { path }
}

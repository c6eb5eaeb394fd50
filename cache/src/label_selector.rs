//! Label selectors, in the grammar of apimachinery's `labels.Parse`.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = key | "!" key | key ( "=" | "==" | "!=" | ">" | "<" ) [ value ] | key ( "in" | "notin" ) "(" values ")"
//! ```
//! Spaces and tabs separate and mean nothing; `in` and `notin` are keywords only where an operator is expected.

use std::collections::BTreeMap;

/// A label selector: all its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    DoesNotExist,
    Exists,
    GreaterThan(i64),
    In(Vec<String>),
    LessThan(i64),
    NotIn(Vec<String>),
}

/// A text that is no selector, or one that only the server should judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSelector;

impl LabelSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// The server would refuse it, or must judge it.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let mut parser = Parser {
            tokens: tokens(text)?,
            at: 0,
        };
        let mut requirements = Vec::new();
        if parser.peek().is_none() {
            return Ok(Self::default());
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                None => return Ok(Self(requirements)),
                Some(Token::Comma) => {}
                Some(_) => return Err(InvalidSelector),
            }
        }
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }
}

impl Requirement {
    /// A label that is missing satisfies `!=` and `notin`, and neither `>` nor `<`.
    fn matches(&self, value: Option<&String>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::DoesNotExist => value.is_none(),
            Test::Exists => value.is_some(),
            Test::GreaterThan(than) => number().is_some_and(|number| number > *than),
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::LessThan(than) => number().is_some_and(|number| number < *than),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Close,
    Comma,
    DoubleEquals,
    Equals,
    Greater,
    Less,
    Not,
    NotEquals,
    Open,
    Word(String),
}

fn tokens(text: &str) -> Result<Vec<Token>, InvalidSelector> {
    let special = |c: char| "=!(),<>".contains(c);
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else {
            return Ok(tokens);
        };
        let (token, length) = match first {
            // Go reads a NUL as the end of the text.
            '\0' => return Err(InvalidSelector),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            '>' => (Token::Greater, 1),
            '<' => (Token::Less, 1),
            '=' if rest.starts_with("==") => (Token::DoubleEquals, 2),
            '=' => (Token::Equals, 1),
            '!' if rest.starts_with("!=") => (Token::NotEquals, 2),
            '!' => (Token::Not, 1),
            _ => {
                let end = rest
                    .find(|c: char| special(c) || " \t\r\n".contains(c))
                    .unwrap_or(rest.len());
                (Token::Word(rest[..end].to_owned()), end)
            }
        };
        tokens.push(token);
        rest = &rest[length..];
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, InvalidSelector> {
        let mut token = self.next();
        let negated = token == Some(Token::Not);
        if negated {
            token = self.next();
        }
        let Some(Token::Word(key)) = token else {
            return Err(InvalidSelector);
        };
        if !is_key(&key) {
            return Err(InvalidSelector);
        }
        if negated {
            return Ok(Requirement {
                key,
                test: Test::DoesNotExist,
            });
        }
        if matches!(self.peek(), None | Some(Token::Comma)) {
            return Ok(Requirement {
                key,
                test: Test::Exists,
            });
        }
        let test = match self.next() {
            Some(Token::Equals | Token::DoubleEquals) => Test::In(vec![self.value()?]),
            Some(Token::NotEquals) => Test::NotIn(vec![self.value()?]),
            Some(Token::Greater) => Test::GreaterThan(self.number()?),
            Some(Token::Less) => Test::LessThan(self.number()?),
            Some(Token::Word(word)) if word == "in" => Test::In(self.values()?),
            Some(Token::Word(word)) if word == "notin" => Test::NotIn(self.values()?),
            _ => return Err(InvalidSelector),
        };
        Ok(Requirement { key, test })
    }

    /// One value, which may be missing and is then empty.
    fn value(&mut self) -> Result<String, InvalidSelector> {
        if matches!(self.peek(), None | Some(Token::Comma)) {
            return Ok(String::new());
        }
        match self.next() {
            Some(Token::Word(value)) if is_value(&value) => Ok(value),
            _ => Err(InvalidSelector),
        }
    }

    fn number(&mut self) -> Result<i64, InvalidSelector> {
        // Rust and Go agree on which texts are integers, but for Go's sign of a value being no label value.
        self.value()?.parse().map_err(|_| InvalidSelector)
    }

    /// `( [value] { "," value } [","] )`; a missing value, as in `()`, is the empty one. What two commas in a row mean
    /// depends on what follows them, and is left to the server.
    fn values(&mut self) -> Result<Vec<String>, InvalidSelector> {
        if self.next() != Some(Token::Open) {
            return Err(InvalidSelector);
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                Some(Token::Word(_)) => values.push(self.value()?),
                Some(Token::Comma | Token::Close) => values.push(String::new()),
                _ => return Err(InvalidSelector),
            }
            match self.next() {
                Some(Token::Comma) if self.peek() == Some(&Token::Comma) => {
                    return Err(InvalidSelector);
                }
                Some(Token::Comma) => {}
                Some(Token::Close) => return Ok(values),
                _ => return Err(InvalidSelector),
            }
        }
    }
}

/// A qualified name: `[prefix/]name`, the prefix a DNS subdomain.
fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_value(name)
}

/// At most 63 letters, digits, `-`, `_` and `.`, alphanumeric at both ends; or nothing.
fn is_value(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let ends = [value.bytes().next(), value.bytes().next_back()];
    value.len() <= 63
        && value.bytes().all(inner)
        && ends.iter().flatten().all(u8::is_ascii_alphanumeric)
}

fn is_subdomain(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> Option<bool> {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        LabelSelector::parse(selector)
            .ok()
            .map(|selector| selector.matches(&labels))
    }

    #[test]
    fn requirements_are_told_apart() {
        let labels = [
            ("a", "b"),
            ("n", "7"),
            ("e", ""),
            ("ex.io/x", "y"),
            ("in", "notin"),
        ];
        for (selector, expected) in [
            ("", true),
            ("  ", true),
            ("a", true),
            ("!a", false),
            ("! z", true),
            ("z", false),
            ("a=b", true),
            ("a==b", true),
            (" a = b , n ", true),
            ("a=c", false),
            ("a!=c", true),
            ("z!=c", true),
            ("a!=b", false),
            ("a in (b,c)", true),
            ("a in(b)", true),
            ("a in ( c , d )", false),
            ("a notin (b)", false),
            ("a notin (c,d)", true),
            ("z notin (c)", true),
            ("z in (c)", false),
            ("n>6", true),
            ("n>7", false),
            ("n<8", true),
            ("a>1", false),
            ("z<1", false),
            ("e=", true),
            ("e", true),
            ("e in ()", true),
            ("a in ()", false),
            ("e in (,b)", true),
            ("a in (,b)", true),
            ("a in (b,)", true),
            ("a=,n", false),
            ("ex.io/x=y", true),
            ("in=notin", true),
            ("in in (notin,in)", true),
            ("a=b,n>6,!z", true),
        ] {
            assert_eq!(selects(selector, &labels), Some(expected), "{selector}");
        }
    }

    #[test]
    fn what_the_server_refuses_or_must_judge_is_left_to_it() {
        let long = "x".repeat(64);
        for selector in [
            "a b",
            ",",
            "a,",
            ",a",
            "a=b,,c=d",
            "=b",
            "!",
            "!!a",
            "!a=b",
            "a=b=c",
            "a in b",
            "a in",
            "a in (b",
            "a in (b))",
            "a in (b c)",
            "a>",
            "a>b",
            "a>1.5",
            "a<-1",
            "a===b",
            "a=!b",
            "-a",
            "a-",
            "a/b/c",
            "/a",
            "A.b/",
            "X.io/a",
            "a=b!",
            "a=ü",
            "ü",
            "a in (x,,y)",
            "a in (,,)",
            "a=b\0",
            "(a)",
            "a notin b",
            "a in (=)",
        ] {
            assert_eq!(
                LabelSelector::parse(selector),
                Err(InvalidSelector),
                "{selector}"
            );
        }
        for selector in [
            long.clone(),
            format!("a={long}"),
            format!("a in (b,{long})"),
        ] {
            assert_eq!(
                LabelSelector::parse(&selector),
                Err(InvalidSelector),
                "{selector}"
            );
        }
    }
}

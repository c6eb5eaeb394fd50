//! CSV exactly as Go's `encoding/csv` reads it, which reads kube-apiserver's token file. Fields are bytes: a token need
//! not be text.

/// One record: what stands between two line ends that are in no quotes.
pub(super) struct Record {
    /// The line it begins in, from 1.
    pub(super) line: usize,
    /// Its fields, unquoted.
    pub(super) fields: Vec<Vec<u8>>,
}

/// All records. Empty lines are none. After an error it goes on with the next line, so that all errors can be told.
pub(super) fn records(content: &[u8]) -> impl Iterator<Item = Result<Record, String>> {
    let mut reader = Reader {
        rest: content,
        line: 0,
    };
    std::iter::from_fn(move || reader.record().transpose())
}

struct Reader<'a> {
    rest: &'a [u8],
    line: usize,
}

impl<'a> Reader<'a> {
    fn record(&mut self) -> Result<Option<Record>, String> {
        let mut line = loop {
            match self.line() {
                None => return Ok(None),
                Some(line) if line.text.is_empty() => {}
                Some(line) => break line,
            }
        };
        let began = self.line;
        let mut fields = Vec::new();
        loop {
            let more = match line.text.strip_prefix(b"\"") {
                Some(text) => {
                    line.text = text;
                    self.quoted(&mut line, &mut fields)?
                }
                None => self.plain(&mut line, &mut fields)?,
            };
            if !more {
                let line = began;
                return Ok(Some(Record { line, fields }));
            }
        }
    }

    /// Reads a field without quotes; whether another one follows.
    fn plain(&self, line: &mut Line<'a>, fields: &mut Vec<Vec<u8>>) -> Result<bool, String> {
        let end = line.text.iter().position(|byte| *byte == b',');
        let field = &line.text[..end.unwrap_or(line.text.len())];
        if field.contains(&b'"') {
            return Err(format!(
                "line {}: a quote in a field without quotes",
                self.line
            ));
        }
        fields.push(field.to_vec());
        if let Some(end) = end {
            line.text = &line.text[end + 1..];
        }
        Ok(end.is_some())
    }

    /// Reads what follows an opening quote, over line ends up to the closing one; whether another field follows.
    fn quoted(&mut self, line: &mut Line<'a>, fields: &mut Vec<Vec<u8>>) -> Result<bool, String> {
        let mut field = Vec::new();
        loop {
            let Some(quote) = line.text.iter().position(|byte| *byte == b'"') else {
                field.extend_from_slice(line.text);
                if line.ended {
                    field.push(b'\n');
                }
                *line = match self.line() {
                    Some(next) => next,
                    None => return Err(format!("line {}: a quote that is not closed", self.line)),
                };
                continue;
            };
            field.extend_from_slice(&line.text[..quote]);
            match line.text[quote + 1..].split_first() {
                None => {
                    fields.push(field);
                    return Ok(false);
                }
                Some((b',', rest)) => {
                    line.text = rest;
                    fields.push(field);
                    return Ok(true);
                }
                Some((b'"', rest)) => {
                    line.text = rest;
                    field.push(b'"');
                }
                Some(_) => {
                    return Err(format!("line {}: text after a closing quote", self.line));
                }
            }
        }
    }

    /// The next line without its end, `\n` or `\r\n`; a `\r` at the very end of the file is none of the text either.
    fn line(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        self.line += 1;
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (text, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        Some(Line {
            text: text.strip_suffix(b"\r").unwrap_or(text),
            ended: end.is_some(),
        })
    }
}

struct Line<'a> {
    text: &'a [u8],
    /// Whether a line end followed.
    ended: bool,
}

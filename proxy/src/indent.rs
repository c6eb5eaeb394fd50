//! JSON indented as kube-apiserver indents it, out of compact JSON, without reading what it says.

use bytes::{Buf, Bytes, BytesMut};

/// Pieces are about this long. What comes out is counted: in deep objects a byte can become thousands.
const PIECE_BYTES: usize = 64 << 10;

/// Indents a stream of JSON: Go's `json.MarshalIndent` with two spaces. Nothing but the bytes at hand is kept.
#[derive(Debug)]
pub struct Indented<I> {
    chunks: I,
    /// What is left of the chunk at hand.
    rest: Bytes,
    state: State,
}

#[derive(Debug, Default)]
struct State {
    depth: usize,
    place: Place,
}

/// Where in the text the next byte stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Between,
    /// Right behind `{` or `[`: an empty one is closed on the same line.
    Opened,
    String,
    Escape,
}

impl<I: Iterator<Item = Bytes>> Indented<I> {
    /// Indents what these chunks are together, wherever it is cut.
    pub fn new(chunks: I) -> Self {
        Self {
            chunks,
            rest: Bytes::new(),
            state: State::default(),
        }
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for Indented<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        while piece.len() < PIECE_BYTES {
            if self.rest.is_empty() {
                let Some(chunk) = self.chunks.next() else {
                    break;
                };
                self.rest = chunk;
            }
            // Objects grow by a third to a half.
            piece.reserve((self.rest.len() * 2).min(PIECE_BYTES + (PIECE_BYTES >> 2)));
            let taken = self.state.indent(&self.rest, &mut piece);
            self.rest.advance(taken);
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }
}

impl State {
    /// Indents until the piece is full, and returns how many bytes were taken.
    fn indent(&mut self, text: &[u8], piece: &mut BytesMut) -> usize {
        let mut at = 0;
        while at < text.len() && piece.len() < PIECE_BYTES {
            at += match self.place {
                Place::String => self.string(&text[at..], piece),
                Place::Escape => {
                    piece.extend_from_slice(&text[at..=at]);
                    self.place = Place::String;
                    1
                }
                Place::Between | Place::Opened => {
                    self.token(text[at], piece);
                    1
                }
            };
        }
        at
    }

    /// Takes the part of a string up to its end or to the next escape.
    fn string(&mut self, text: &[u8], piece: &mut BytesMut) -> usize {
        let Some(at) = memchr::memchr2(b'"', b'\\', text) else {
            piece.extend_from_slice(text);
            return text.len();
        };
        piece.extend_from_slice(&text[..=at]);
        self.place = if text[at] == b'"' {
            Place::Between
        } else {
            Place::Escape
        };
        at + 1
    }

    fn token(&mut self, byte: u8, piece: &mut BytesMut) {
        match byte {
            // A list ends with a newline when it is compact, and without when it is indented.
            b' ' | b'\n' | b'\r' | b'\t' => {}
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.place != Place::Opened {
                    self.break_line(piece);
                }
                self.place = Place::Between;
                piece.extend_from_slice(&[byte]);
            }
            b',' => {
                piece.extend_from_slice(b",");
                self.break_line(piece);
            }
            b':' => piece.extend_from_slice(b": "),
            _ => {
                if self.place == Place::Opened {
                    self.break_line(piece);
                }
                piece.extend_from_slice(&[byte]);
                self.place = match byte {
                    b'{' | b'[' => {
                        self.depth += 1;
                        Place::Opened
                    }
                    b'"' => Place::String,
                    _ => Place::Between,
                };
            }
        }
    }

    fn break_line(&self, piece: &mut BytesMut) {
        piece.extend_from_slice(b"\n");
        piece.resize(piece.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn indent(chunks: &[&str]) -> String {
        let chunks = chunks
            .iter()
            .map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()));
        String::from_utf8(Indented::new(chunks).flatten().collect()).unwrap()
    }

    #[test]
    fn it_is_what_go_writes() {
        for (compact, indented) in [
            ("", ""),
            ("{}\n", "{}"),
            ("[]", "[]"),
            ("null\n", "null"),
            ("[[],{}]", "[\n  [],\n  {}\n]"),
            (
                r#"{"a":{"b":[1,-2.5e3,true,null]},"c":"\"\\{}[],: \u003c"}"#,
                "{\n  \"a\": {\n    \"b\": [\n      1,\n      -2.5e3,\n      true,\n      null\n    ]\n  },\n  \"c\": \"\\\"\\\\{}[],: \\u003c\"\n}",
            ),
        ] {
            assert_eq!(indent(&[compact]), indented);
        }
    }

    #[test]
    fn pieces_are_bounded_however_deep_the_objects() {
        let depth = 10_000;
        let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let pieces = Indented::new([Bytes::from(text)].into_iter());
        let mut total = 0;
        for piece in pieces {
            assert!(piece.len() <= PIECE_BYTES + 2 * depth + 2);
            total += piece.len();
        }
        assert!(total > depth * depth);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            r#"["\\{}\[\],: ]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Any JSON, cut anywhere, is what serde_json writes with two spaces.
        #[test]
        fn any_json_cut_anywhere(value in json(), cuts in prop::collection::vec(1_usize..9, 1..30)) {
            let text = serde_json::to_vec(&value).unwrap();
            let mut chunks = Vec::new();
            let mut rest = &text[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, tail) = rest.split_at((*cut).min(rest.len()));
                chunks.push(Bytes::copy_from_slice(chunk));
                rest = tail;
            }
            let indented: Vec<u8> = Indented::new(chunks.into_iter()).flatten().collect();
            prop_assert_eq!(String::from_utf8(indented).unwrap(), serde_json::to_string_pretty(&value).unwrap());
        }
    }
}

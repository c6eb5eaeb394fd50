//! Which of the forms that are held is one that a request asks for.

use fleetcache_cache::documents::{DocumentKey, Held};
use http::header::CONTENT_TYPE;

use super::OPENAPI_INDEX;

/// A media range of `Accept`, or a `Content-Type`: what of it makes another form.
#[derive(Debug, PartialEq, Eq)]
struct MediaType {
    /// Type and subtype, in lower case.
    essence: String,
    /// The group, version and kind to convert to, as `g`, `v` and `as`.
    target: [String; 3],
    /// A view of its own, which `Content-Type` does not tell.
    profile: bool,
}

impl MediaType {
    /// Reads one, and its weight.
    fn parse(text: &str) -> (Self, f32) {
        let mut parts = text.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut media_type = Self {
            // OpenAPI is asked for with `@` in its protobuf type, and answered with `.`.
            essence: essence.replace('@', "."),
            target: Default::default(),
            profile: false,
        };
        let mut weight = 1.0;
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim_matches('"');
            match name.to_ascii_lowercase().as_str() {
                "g" => value.clone_into(&mut media_type.target[0]),
                "v" => value.clone_into(&mut media_type.target[1]),
                "as" => value.clone_into(&mut media_type.target[2]),
                "profile" => media_type.profile = true,
                "q" => weight = value.parse().unwrap_or(0.0),
                // The server knows no others that count, and indentation is not asked for its own sake.
                _ => {}
            }
        }
        (media_type, weight)
    }

    /// Whether a form satisfies this range.
    fn admits(&self, form: &Self) -> bool {
        if self.profile || form.profile {
            return false;
        }
        if self.essence == "*/*" {
            return form.essence == "application/json" && form.target == self.target;
        }
        self == form
    }
}

/// The form that answers a request: the server's own answer to the same words, or else the first in the order of the
/// request's media ranges.
pub(super) fn choose<'h>(key: &DocumentKey, held: &'h [Held]) -> Option<&'h Held> {
    let exact = held.iter().find(|held| held.key == *key);
    exact.or_else(|| {
        // As compact as the request wants it where there is a choice, then the newest.
        let mut held: Vec<&Held> = held.iter().collect();
        held.sort_by_key(|held| (held.key.indented != key.indented, held.age));
        if key.path == OPENAPI_INDEX {
            return held.first().copied();
        }
        let forms: Vec<_> = held.iter().map(|held| form(held)).collect();
        ranges(&key.accept).iter().find_map(|range| {
            let admitted = forms.iter().position(|form| range.admits(form))?;
            held.get(admitted).copied()
        })
    })
}

/// What a document is.
fn form(held: &Held) -> MediaType {
    let content_type = held.document.headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let (mut form, _) = MediaType::parse(content_type.unwrap_or_default());
    form.profile = held.key.accept.contains("profile=");
    form
}

/// The media ranges of an `Accept`, best first.
fn ranges(accept: &str) -> Vec<MediaType> {
    let accept = if accept.trim().is_empty() {
        "*/*"
    } else {
        accept
    };
    let mut ranges: Vec<_> = accept.split(',').map(MediaType::parse).collect();
    ranges.retain(|(_, weight)| *weight > 0.0);
    // Stable: of equal weight the first written is first, as the server has it.
    ranges.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    ranges.into_iter().map(|(range, _)| range).collect()
}

//! What tests look for in protobuf: where the versions stand that move by themselves, and the frames of a watch.

const MEDIA_TYPE: &[u8] = b"application/vnd.kubernetes.protobuf";

/// Whether a content type is protobuf, of an answer or of a watch.
pub(crate) fn is_protobuf(content_type: &[u8]) -> bool {
    content_type.starts_with(MEDIA_TYPE)
}

/// A body as text, with `?` for the version and the continue token in a list's own metadata.
pub(crate) fn without_list_version(body: &[u8]) -> String {
    let found = list_metadata(body).unwrap_or_default();
    // Version and token.
    let moving = [2, 3].map(|number| field(found, number).unwrap_or_default());
    without(body, &moving)
}

/// The token with which a list goes on; "" where nothing follows.
pub(crate) fn continue_token(body: &[u8]) -> Option<String> {
    let token = field(list_metadata(body)?, 3)?;
    String::from_utf8(token.to_vec()).ok()
}

/// A frame of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) event_type: String,
    /// The object as text; that of a bookmark without its version.
    pub(crate) object: String,
}

/// The frames of a watch; `None` if it is not of whole ones.
pub(crate) fn frames(mut body: &[u8]) -> Option<Vec<Frame>> {
    let mut frames = Vec::new();
    while !body.is_empty() {
        let (length, rest) = body.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (event, rest) = rest.split_at_checked(length)?;
        body = rest;
        let event_type = String::from_utf8(field(event, 1)?.to_vec()).ok()?;
        let object = field(field(event, 2)?, 1)?;
        let version = match &*event_type {
            "BOOKMARK" => field(field(kind_and_message(object)?.1, 1)?, 6)?,
            _ => &[],
        };
        frames.push(Frame {
            object: without(object, &[version]),
            event_type,
        });
    }
    Some(frames)
}

fn list_metadata(body: &[u8]) -> Option<&[u8]> {
    let (type_meta, message) = kind_and_message(body)?;
    let kind = field(type_meta, 2)?;
    // The only list that has its items first.
    let items_first =
        kind == b"PartialObjectMetadataList" && field(type_meta, 1)? == b"meta.k8s.io/v1beta1";
    kind.ends_with(b"List")
        .then(|| field(message, if items_first { 2 } else { 1 }))?
}

fn kind_and_message(object: &[u8]) -> Option<(&[u8], &[u8])> {
    let unknown = object.strip_prefix(b"k8s\0")?;
    Some((field(unknown, 1)?, field(unknown, 2)?))
}

/// The bytes as text, with `?` for some of them.
fn without(bytes: &[u8], parts: &[&[u8]]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let at = part.as_ptr().addr() - rest.as_ptr().addr();
        text += &format!("{}?", rest[..at].escape_ascii());
        rest = &rest[at + part.len()..];
    }
    text + &rest.escape_ascii().to_string()
}

/// An object or a list as it stands by itself, without who manages which field of it or of its items.
pub(crate) fn without_managed_fields(body: &[u8]) -> Vec<u8> {
    let is_list = list_metadata(body).is_some();
    let unknown = body.strip_prefix(b"k8s\0").unwrap();
    let of_object =
        |object: &[u8]| rewritten(object, 1, |meta| Some(rewritten(meta, 17, |_| None)));
    let unknown = rewritten(unknown, 2, |message| {
        Some(match is_list {
            true => rewritten(message, 2, |item| Some(of_object(item))),
            false => of_object(message),
        })
    });
    [b"k8s\0", &*unknown].concat()
}

/// A message with other values of a field that has a length, or without it.
fn rewritten(mut message: &[u8], number: u64, value: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut written = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message).unwrap();
        let length = varint(&mut message).unwrap();
        let mut bytes: &[u8] = &[];
        if tag & 7 == 2 {
            (bytes, message) = message.split_at(usize::try_from(length).unwrap());
        }
        let new = match tag == number << 3 | 2 {
            true => value(bytes),
            false => Some(bytes.to_vec()),
        };
        if let Some(new) = new {
            let length = if tag & 7 == 2 {
                new.len() as u64
            } else {
                length
            };
            for mut number in [tag, length] {
                while number >= 0x80 {
                    written.push((number & 0x7f | 0x80) as u8);
                    number >>= 7;
                }
                written.push(number as u8);
            }
            written.extend(new);
        }
    }
    written
}

/// The first value of a field that has a length.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = varint(&mut message)?;
        if tag & 7 == 2 {
            let (bytes, rest) = message.split_at_checked(usize::try_from(value).ok()?)?;
            if tag >> 3 == number {
                return Some(bytes);
            }
            message = rest;
        } else if tag & 7 != 0 {
            return None;
        }
    }
    None
}

fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[test]
fn what_moves_by_itself_is_left_out() {
    let list =
        b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x0f\x0a\x07\x0a\0\x12\x019\x1a\0\x12\x04item";
    assert_eq!(
        without_list_version(list),
        list.escape_ascii().to_string().replace("\\x019", "\\x01?")
    );
    let object = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x05\x0a\x03\x32\x017";
    assert_eq!(
        without_list_version(object),
        object.escape_ascii().to_string()
    );
    // A length-delimited field; all are short.
    let long = |tag: u8, bytes: &[u8]| [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let frame = |event_type: &str| {
        let event_type = long(0x0a, event_type.as_bytes());
        let event = [event_type, long(0x12, &long(0x0a, object))].concat();
        [&[0, 0], &*long(0, &event)].concat()
    };
    let both = [frame("BOOKMARK"), frame("MODIFIED")].concat();
    let frames = frames(&both).unwrap();
    let [bookmark, modified] = &*frames else {
        panic!("{frames:?}")
    };
    assert!(bookmark.object.ends_with("2\\x01?"), "{bookmark:?}");
    assert!(modified.object.ends_with("2\\x017"), "{modified:?}");
}

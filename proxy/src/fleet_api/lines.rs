//! The lines of a watch, each object written as a row of a table or as its metadata.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use fleetcache_cache::object::WatchFrame;
use hyper::body::{Body as HttpBody, Frame};

use super::object::ClusterConnection;
use super::table::{self, Include};
use crate::body::BoxError;

/// How objects are written; the version is that of the representation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Written {
    Table(&'static str, Include),
    Metadata(&'static str),
}

/// A watch's lines, written anew. What comes in one piece is of whole lines.
pub(super) struct Lines<B> {
    lines: B,
    written: Written,
    /// The columns were told.
    has_columns: bool,
}

impl<B> Lines<B> {
    pub(super) fn new(lines: B, written: Written) -> Self {
        Self {
            lines,
            written,
            has_columns: false,
        }
    }

    fn write(&mut self, lines: &[u8]) -> Bytes {
        let mut text = BytesMut::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match self.write_line(line) {
                Some(line) => text.put(line),
                None => text.put(line),
            }
        }
        text.freeze()
    }

    /// `None` for a line that stays as it is: an error is no object.
    fn write_line(&mut self, line: &[u8]) -> Option<Bytes> {
        let frame = WatchFrame::parse(line).ok()?;
        if frame.event_type == "ERROR" {
            return None;
        }
        let object = ClusterConnection::from_json(frame.object.get().as_bytes())?;
        let is_bookmark = frame.event_type == "BOOKMARK";
        let parts = match self.written {
            Written::Metadata(version) => vec![table::metadata_alone(&object.metadata, version)],
            Written::Table(version, include) => {
                let at = &object.metadata.resource_version;
                let metadata = format!(r#"{{"resourceVersion":"{at}"}}"#);
                let with_columns = !std::mem::replace(&mut self.has_columns, true);
                let (head, tail) = table::around(version, &metadata, with_columns);
                let row = match is_bookmark {
                    true => table::bookmark_row(&object, version, include),
                    false => table::row(&object, version, include),
                };
                vec![head, row, tail]
            }
        };
        let head = format!(r#"{{"type":"{}","object":"#, frame.event_type);
        Some([head.as_bytes(), &parts.concat(), b"}\n"].concat().into())
    }
}

impl<B> HttpBody for Lines<B>
where
    B: HttpBody<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.lines).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            Ok(frame.map_data(|lines| self.write(&lines)))
        }))
    }
}

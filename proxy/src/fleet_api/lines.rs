//! The lines of a watch, each object written as it is asked for: whole, as a row of a table or as its metadata.
//!
//! An object that a watcher is told of for the first time has the figures of this moment, whenever it last changed: they may
//! be days younger. Where it changes they are those of the change.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::form::IncludeObject;
use fleetcache_cache::object::WatchFrame;
use hyper::body::{Body as HttpBody, Frame};

use super::object::ClusterConnection;
use super::table;
use crate::body::BoxError;

/// How objects are written; the version is that of the representation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Written {
    Object,
    Table(&'static str, IncludeObject),
    Metadata(&'static str),
}

/// A watch's lines, written anew. What comes in one piece is of whole lines.
pub(super) struct Lines<B> {
    lines: B,
    written: Written,
    /// For the figures.
    clusters: Arc<ClusterCache>,
    /// The columns were told.
    has_columns: bool,
}

impl<B> Lines<B> {
    pub(super) fn new(lines: B, written: Written, clusters: Arc<ClusterCache>) -> Self {
        Self {
            lines,
            written,
            clusters,
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
        let (is_new, is_bookmark) = (frame.event_type == "ADDED", frame.event_type == "BOOKMARK");
        if frame.event_type == "ERROR" || matches!(self.written, Written::Object) && !is_new {
            return None;
        }
        let mut object = ClusterConnection::from_json(frame.object.get().as_bytes())?;
        if is_new {
            object = object.with_figures_of(&self.clusters);
        }
        let parts = match self.written {
            Written::Object => vec![object.to_json()],
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

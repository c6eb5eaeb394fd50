//! A scanner for each representation that can be read.

use super::json_scan::{JsonScan, Unreadable};
use super::protobuf_scan::ProtobufScan;
use super::seen::Seen;

/// Reads bytes as they pass.
#[derive(Debug)]
pub(super) enum Scan {
    Json(JsonScan),
    Protobuf(ProtobufScan),
    /// Nothing, for what cannot be read.
    Unreadable,
}

impl Scan {
    /// The scanner of a content type.
    pub(super) fn of(content_type: &str, watch: bool) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match (essence, watch) {
            ("application/json", false) => Self::Json(JsonScan::of_body()),
            ("application/json", true) => Self::Json(JsonScan::of_watch()),
            ("application/vnd.kubernetes.protobuf", false) => {
                Self::Protobuf(ProtobufScan::of_body())
            }
            ("application/vnd.kubernetes.protobuf", true) => {
                Self::Protobuf(ProtobufScan::of_watch())
            }
            _ => Self::Unreadable,
        }
    }

    /// Whether no document is under way.
    pub(super) fn is_between_documents(&self) -> bool {
        match self {
            Self::Json(scan) => scan.is_between_documents(),
            Self::Protobuf(scan) => scan.is_between_documents(),
            Self::Unreadable => true,
        }
    }

    /// Reads none of the document that follows.
    pub(super) fn skip_document(&mut self) {
        match self {
            Self::Json(scan) => scan.skip_document(),
            Self::Protobuf(scan) => scan.skip_document(),
            Self::Unreadable => {}
        }
    }

    /// Reads up to the next thing seen. Gives how many bytes that took.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<(usize, Option<Seen>), Unreadable> {
        match self {
            Self::Json(scan) => scan.next(bytes),
            Self::Protobuf(scan) => scan.next(bytes),
            Self::Unreadable => Err(Unreadable),
        }
    }
}

//! What a reflector does otherwise where objects are held in protobuf: it asks for nothing else, so that a server that has none
//! of a kind says so.

use bytes::Bytes;
use http::HeaderMap;

use super::list::Page;
use super::requests::{self, ApiResource};
use super::taken_in::element_of_protobuf;
use super::{Reflector, ReflectorError};
use crate::connection::{Connection, InformerShard};
use crate::envelope::{Envelope, Learned};
use crate::informers::Refusal;
use crate::object::protobuf::{ListHead, Typed};
use crate::resource_version::ResourceVersion;

impl Reflector {
    /// How the lists of a kind are written, and how many objects it has; with the headers of that answer.
    pub(super) async fn learn_protobuf(
        &self,
        connection: &Connection,
        shard: &InformerShard,
        resource: &ApiResource,
    ) -> Result<(Learned, HeaderMap), ReflectorError> {
        let path = requests::list_path(&self.informer.gvr, "limit=1");
        let accept = requests::accept(self.informer.holding);
        let (headers, body) = requests::fetch_with_headers(connection, shard, &path, accept)
            .await
            .map_err(no_protobuf)?;
        // Some extension servers answer in JSON whatever they are asked for.
        if body.starts_with(b"{") {
            return Err(ReflectorError::Refused(Refusal::NoProtobuf));
        }
        Ok((Envelope::learn_protobuf(&body, &resource.kind)?, headers))
    }
}

/// That a server would answer, but not in protobuf.
fn no_protobuf(error: ReflectorError) -> ReflectorError {
    match error {
        ReflectorError::Status { code: 406, .. } => ReflectorError::Refused(Refusal::NoProtobuf),
        error => error,
    }
}

/// Reads a page of a list.
pub(super) fn page(body: &Bytes, envelope: &Envelope) -> Result<Page, ReflectorError> {
    let list = ListHead::parse(Typed::parse(body)?.raw)?;
    let element = |item: &&[u8]| element_of_protobuf(envelope, item);
    Ok(Page {
        elements: list.items.iter().map(element).collect::<Result<_, _>>()?,
        continue_token: list.continue_token.to_owned(),
        resource_version: ResourceVersion::parse(list.resource_version),
    })
}

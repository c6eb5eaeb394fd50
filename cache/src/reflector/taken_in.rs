//! Objects as they are taken in: as the server sent them, but for what the configuration does not keep.

use bytes::Bytes;

use super::ReflectorError;
use crate::envelope::{Envelope, EnvelopeError};
use crate::object::{ObjectMeta, protobuf};
use crate::store::Element;

/// An object in JSON, in list-item form, with the metadata that were read from `object`, as it came.
pub(super) fn element(
    envelope: &Envelope,
    meta: &ObjectMeta<'_>,
    object: &[u8],
    item: Bytes,
) -> Result<Element, ReflectorError> {
    let element = Element::new(meta, object, item).ok_or(ReflectorError::NoResourceVersion)?;
    if envelope.keeps_managed_fields() {
        return Ok(element);
    }
    let element = element.without_managed_fields(meta, object);
    Ok(element.ok_or(EnvelopeError::UnknownObjectForm)?)
}

/// An object in protobuf: the message of its kind.
pub(super) fn element_of_protobuf(
    envelope: &Envelope,
    message: &[u8],
) -> Result<Element, ReflectorError> {
    let element = match envelope.keeps_managed_fields() {
        true => Element::of_protobuf(message)?,
        false => Element::of_protobuf(&protobuf::without_managed_fields(message)?)?,
    };
    element.ok_or(ReflectorError::NoResourceVersion)
}

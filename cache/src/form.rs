//! What is written of an object for who reads it.

/// What is written of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// All of it, as JSON.
    #[default]
    Object,
    /// All of it, as protobuf.
    Protobuf,
    /// Its metadata alone, as `PartialObjectMetadata` in JSON.
    Metadata(MetaVersion),
    /// The same in protobuf.
    ProtobufMetadata(MetaVersion),
}

/// An object that cannot be written byte for byte as its server would: what JSON says of it is not all that protobuf has, or is
/// not known here; or it is held in another encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritable;

impl Form {
    /// Whether it is protobuf.
    pub fn is_protobuf(self) -> bool {
        matches!(self, Self::Protobuf | Self::ProtobufMetadata(_))
    }

    /// Whether it is all of an object, as it is held.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::Object | Self::Protobuf)
    }

    /// Bytes that an item of so many may take in this form.
    pub(crate) fn room(self, item: usize) -> usize {
        match self {
            Self::Object | Self::Protobuf => item + 128,
            // Most of it is what manages which field.
            Self::Metadata(_) | Self::ProtobufMetadata(_) => item.min(2048) + 128,
        }
    }
}

/// A version of `meta.k8s.io`, which has the types of other forms than objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1beta1,
}

impl MetaVersion {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

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
    /// The cells that `kubectl get` shows, as a row of a `Table` in JSON.
    Table(Table),
}

/// A `Table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its version.
    pub version: MetaVersion,
    /// What stands beside the cells.
    pub include: IncludeObject,
    /// Whether it says what its columns are: all that comes after the first event of a watch does not.
    pub has_columns: bool,
}

/// What stands beside the cells of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing; of a bookmark, its metadata.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The object.
    Object,
}

/// An object that cannot be written byte for byte as its server would: what is held of it is not all that there is to know, or
/// is not understood here; or it is held in another encoding.
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
            Self::Table(table) => match table.include {
                IncludeObject::None => 512,
                IncludeObject::Metadata => item.min(2048) + 512,
                IncludeObject::Object => item + 512,
            },
        }
    }

    /// What comes after the first event of a watch.
    pub(crate) fn after_first_event(self) -> Self {
        match self {
            Self::Table(table) => Self::Table(Table {
                has_columns: false,
                ..table
            }),
            other => other,
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

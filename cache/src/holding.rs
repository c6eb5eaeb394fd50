//! In which encoding an informer holds its objects, and which informers of a kind can answer what is asked for.
//!
//! This is the one place that says which informers a kind needs. However mixed its clients are, there are at most as many
//! as there are holdings, each with one watch upstream: JSON has all forms that are written in JSON, protobuf those of
//! built-in kinds that Go clients ask for, and what both have comes from whichever runs.

use crate::form::Form;

/// In which encoding an informer holds the objects of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holding {
    /// Objects in JSON.
    #[default]
    Objects,
    /// Objects in protobuf, which only built-in kinds have.
    Protobuf,
}

impl Holding {
    /// As written in logs and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Objects => "json",
            Self::Protobuf => "protobuf",
        }
    }
}

impl Form {
    /// Who can write it, the best first.
    pub const fn holdings(self) -> &'static [Holding] {
        match self {
            Self::Object | Self::Metadata(_) | Self::Table(_) => &[Holding::Objects],
            Self::Protobuf => &[Holding::Protobuf],
            // From protobuf it is the object's own bytes; JSON does not always tell all of it.
            Self::ProtobufMetadata(_) => &[Holding::Protobuf, Holding::Objects],
        }
    }

    /// Who is started where none of them runs.
    pub const fn starts(self) -> Holding {
        match self {
            Self::Protobuf => Holding::Protobuf,
            // Any kind has objects in JSON, and they are good for most forms.
            Self::Object | Self::Metadata(_) | Self::ProtobufMetadata(_) | Self::Table(_) => {
                Holding::Objects
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{IncludeObject, MetaVersion, Table};

    #[test]
    fn two_informers_answer_all_forms() {
        let forms = [
            Form::Object,
            Form::Metadata(MetaVersion::V1),
            Form::Protobuf,
            Form::ProtobufMetadata(MetaVersion::V1beta1),
            Form::Table(Table {
                version: MetaVersion::V1,
                include: IncludeObject::Metadata,
                has_columns: true,
            }),
        ];
        for form in forms {
            let holdings = form.holdings();
            assert!(holdings.contains(&form.starts()), "{form:?}");
            let protobuf = holdings.contains(&Holding::Protobuf);
            assert_eq!(protobuf, form.is_protobuf(), "{form:?}");
        }
    }
}

//! What can go wrong between a reflector and its server, told apart by what to do about it.

use crate::envelope::EnvelopeError;
use crate::frame::FrameTooLong;
use crate::informers::Refusal;
use crate::protobuf::read::Malformed;
use crate::upstream::UpstreamError;

/// A step of a reflector failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReflectorError {
    #[error("no answer")]
    Upstream(#[from] UpstreamError),
    #[error("the stream broke")]
    Broken(#[source] hyper::Error),
    #[error("the stream ended inside an event")]
    Truncated,
    #[error("the stream ended before the list was complete")]
    Ended,
    #[error("no answer in time")]
    TimedOut,
    #[error("an answer of more than {0} bytes")]
    TooLong(usize),
    #[error("the watch did not end at its time")]
    Overdue,
    #[error("the server answered {code}: {message}")]
    Status { code: u16, message: String },
    #[error("the server sent bytes that are not what was asked for")]
    BadBytes(#[source] serde_json::Error),
    #[error("the server sent bytes that are no gzip, and said that they are")]
    BadGzip(#[source] std::io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the columns of the kind's Tables are not those that were told before")]
    OtherColumns,
    #[error("the kind's Tables have not one row for each object")]
    NotARowEach,
    #[error("an unknown watch event")]
    UnknownEvent,
    #[error("an event is older than the one before it")]
    OutOfOrder,
    #[error("an object without a comparable resourceVersion")]
    NoResourceVersion,
    #[error(transparent)]
    FrameTooLong(#[from] FrameTooLong),
    #[error(transparent)]
    Form(#[from] EnvelopeError),
    #[error("the server's resourceVersion went back: another cluster is behind the name")]
    WentBack,
    #[error("the kind was not learned yet")]
    NotLearned,
    #[error("the kind stays live")]
    Refused(Refusal),
}

impl ReflectorError {
    /// The reason for which the kind stays live, where no other try will mend it.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(*refusal),
            Self::Status { code: 403, .. } => Some(Refusal::Forbidden),
            Self::Status {
                code: 404..=406, ..
            } => Some(Refusal::NotListable),
            Self::TooLong(_) => Some(Refusal::TooManyObjects),
            Self::Form(EnvelopeError::NotAList(_)) => None,
            Self::Form(
                EnvelopeError::UnknownForm
                | EnvelopeError::UnknownObjectForm
                | EnvelopeError::NoResourceVersion,
            )
            | Self::NoResourceVersion => Some(Refusal::UnknownForm),
            _ => None,
        }
    }

    /// The server does not know the options of a streaming list.
    pub(crate) fn is_refused_option(&self) -> bool {
        matches!(
            self,
            Self::Status {
                code: 400 | 422,
                ..
            }
        )
    }

    pub(crate) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Status { code: 401, .. })
    }

    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, Self::Status { code: 410, .. })
    }

    /// The version asked for is not one the server has had.
    pub(crate) fn is_future(&self) -> bool {
        matches!(self, Self::Status { code: 504, .. })
    }

    /// What came is not to be trusted, so what follows it is not either.
    pub(crate) fn is_bad_bytes(&self) -> bool {
        matches!(
            self,
            Self::BadBytes(_)
                | Self::BadGzip(_)
                | Self::Malformed(_)
                | Self::UnknownEvent
                | Self::OutOfOrder
                | Self::FrameTooLong(_)
        )
    }

    /// The server was heard, and did not say what was waited for.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(
            self,
            Self::Ended | Self::TimedOut | Self::Overdue | Self::Status { .. }
        )
    }

    /// The connection, and not the answer, is at fault.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(
            self,
            Self::Upstream(_)
                | Self::Broken(_)
                | Self::Truncated
                | Self::Ended
                | Self::TimedOut
                | Self::Overdue
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_or_garbled_is_not_nothing() {
        let bad_json = serde_json::from_str::<()>("{").unwrap_err();
        let status = |code| ReflectorError::Status {
            code,
            message: String::new(),
        };
        for (error, expected) in [
            (ReflectorError::Ended, true),
            (ReflectorError::TimedOut, true),
            (status(400), true),
            (ReflectorError::BadBytes(bad_json), false),
            (ReflectorError::UnknownEvent, false),
            (ReflectorError::OutOfOrder, false),
            (ReflectorError::Truncated, false),
            (
                ReflectorError::Upstream(UpstreamError::Connect("closed".into())),
                false,
            ),
        ] {
            assert_eq!(error.is_nothing(), expected, "{error}");
        }
    }
}

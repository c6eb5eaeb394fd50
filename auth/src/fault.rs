//! What is wrong with a credential.

/// Why a credential is nobody's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What sort of reason it is: a sentence may be another one for each credential.
    pub sort: FaultSort,
    /// A sentence for logs: a client is told nothing about it. Nothing of the credential with which it could be used.
    pub why: String,
}

/// Sorts of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultSort {
    /// It is for others.
    Audience,
    /// What it says of itself or of its user is not what is asked for, or contradicts itself.
    Content,
    /// It is not what it should be, and cannot be read.
    Form,
    /// A cluster says so.
    Judged,
    /// Its user cannot come by this name.
    Name,
    /// Nobody who is believed has signed it.
    Signature,
    /// It has expired, or is not good yet.
    Time,
    /// Who might know it could not be asked who they are.
    Unasked,
    /// Nobody knows it.
    Unknown,
}

impl FaultSort {
    /// A reason of this sort.
    pub fn because(self, why: impl Into<String>) -> Fault {
        let (sort, why) = (self, why.into());
        Fault { sort, why }
    }
}

/// Of what a credential says.
impl From<String> for Fault {
    fn from(why: String) -> Self {
        FaultSort::Content.because(why)
    }
}

//! How a program ends that cannot do what it was asked to: one sentence and an exit code.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a program cannot go on.
#[derive(Clone, Debug)]
pub struct Failure {
    code: u8,
    sentence: String,
    follows: bool,
}

impl Failure {
    /// The program was called wrongly: exit code 2.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self { code: 2, sentence: sentence.into(), follows: false }
    }

    /// Something else: exit code 1.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { code: 1, sentence: sentence.into(), follows: false }
    }

    /// The other end has stopped, which may have a cause that only it knows: exit code 1.
    pub fn peer_gone(sentence: impl Into<String>) -> Self {
        Self { code: 1, sentence: sentence.into(), follows: true }
    }

    /// Of what both ends in one process say, the one that names the cause.
    #[must_use]
    pub fn cause(self, other: Self) -> Self {
        if self.follows { other } else { self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

/// Every error of the library is a sentence already.
macro_rules! from_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error.to_string())
            }
        }
    )*};
}

from_errors!(
    nanoverbs::endpoint::EndpointError,
    nanoverbs::hub::AdmitError,
    nanoverbs::hub::HubError,
    nanoverbs::nanoverbs_core::OutOfRegion
);

#[cfg(feature = "librdmacm")]
from_errors!(nanoverbs::cm::BindError, nanoverbs::cm::ListenError, nanoverbs::cm::ResolveError);

/// The end of `main`: says what is wrong, in one line, and gives the exit code.
pub fn exit(program: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to be told when this cannot be written.
            let _ = writeln!(io::stderr(), "{program}: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

//! What can go wrong with a hub: one enum for making it, one for admitting a member.

use std::fmt;

use nanoverbs_core::JoinError;

use super::{EndpointError, Key};

/// A hub cannot be made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HubError {
    /// The device has no completion queue for so many requests: fewer members, or depths that are less.
    TooManyCompletions {
        /// What all members together could have in flight.
        need: u64,
        /// What the device's completion queues hold.
        max: u32,
    },
    /// A part of it cannot be had.
    Endpoint(EndpointError),
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyCompletions { need, max } => write!(
                f,
                "the members could have {need} requests in flight, and a completion queue of the device \
                 holds {max}"
            ),
            Self::Endpoint(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HubError {}

impl<E: Into<EndpointError>> From<E> for HubError {
    fn from(error: E) -> Self {
        Self::Endpoint(error.into())
    }
}

/// A peer cannot become a member.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AdmitError {
    /// There is no place for it.
    Join(JoinError),
    /// Its queue pair cannot be had.
    Endpoint(EndpointError),
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(error) => error.fmt(f),
            Self::Endpoint(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AdmitError {}

impl From<JoinError> for AdmitError {
    fn from(error: JoinError) -> Self {
        Self::Join(error)
    }
}

impl From<EndpointError> for AdmitError {
    fn from(error: EndpointError) -> Self {
        Self::Endpoint(error)
    }
}

/// No member of the hub has this key: it has left, or is another hub's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotAMember {
    /// The key.
    pub key: Key,
}

impl fmt::Display for NotAMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no member has the key {:?}: it has left, or is another hub's", self.key)
    }
}

impl std::error::Error for NotAMember {}

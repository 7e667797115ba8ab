//! Programs to start from.

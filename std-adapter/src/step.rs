//! How far a step that does not wait has come.

/// How far a step has come: it is done, or there is nothing to do until its descriptor is readable.
#[derive(Debug)]
#[must_use = "a step that is dropped is given up"]
pub enum Step<T, S> {
    /// It is done, and this came of it.
    Done(T),
    /// The step, to be polled again.
    Pending(S),
}

//! Words for people about what happens seldom: connections, devices, things that were left out.
//!
//! With the feature `tracing` they go to that crate, under the target `nanoverbs`. Nothing that is done
//! for each request says anything.

/// `say!(level, "message", field = value, …)`, each value as it is shown to people.
#[cfg(feature = "tracing")]
macro_rules! say {
    ($level:ident, $text:literal $(, $field:ident = $value:expr)* $(,)?) => {
        tracing::$level!(target: "nanoverbs", $($field = %$value,)* $text)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! say {
    ($level:ident, $text:literal $(, $field:ident = $value:expr)* $(,)?) => {
        if false {
            $(let _ = &$value;)*
        }
    };
}

pub(crate) use say;

//! What a program prints that has succeeded.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::Failure;

/// Prints lines that have a name each; one without a name belongs to the line before.
///
/// A reader who has gone, as in `pingpong | head`, is no reason to panic.
///
/// # Errors
///
/// What the system says.
pub fn table(lines: &[(&str, String)]) -> Result<(), Failure> {
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<12}{value}");
    }
    print(&text)
}

/// Prints one line that stands alone.
///
/// # Errors
///
/// As for [`table`].
pub fn line(text: &str) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new(format!("the standard output cannot be written: {error}")))
}

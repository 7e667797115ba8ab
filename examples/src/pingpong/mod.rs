//! A message there and back, many times, timed; or as many one way as go: the program `pingpong`.
//!
//! [`Args`] say what is wanted and become a [`Plan`]. A client and a server play it through two
//! endpoints: in this process on the soft device, or in two processes on real ones. The client
//! comes home with a tally, and the report prints it.

mod args;
pub use args::{Args, Verb};
mod plan;
pub use plan::{Game, Plan};
mod players;
mod report;
mod soft;
#[cfg(feature = "librdmacm")]
mod verbs;
mod watch;

use crate::Failure;

/// The whole program behind its command line.
///
/// # Errors
///
/// [`Failure`] with the sentence and the exit code.
pub fn run(args: &Args) -> Result<(), Failure> {
    args.check()?;
    // A file that cannot be written is said before the run and not after it.
    let file = args.json.as_deref().map(report::create).transpose()?;
    let report = match (&args.listen, &args.connect) {
        (None, None) => soft::play(args)?,
        #[cfg(feature = "librdmacm")]
        (Some(place), _) => verbs::listen(args, place)?,
        #[cfg(feature = "librdmacm")]
        (None, Some(place)) => verbs::connect(args, place)?,
        #[cfg(not(feature = "librdmacm"))]
        _ => {
            return Err(Failure::new(
                "this pingpong was built without the features `verbs` and `declared`, one of which \
                 --listen and --connect need; without them it plays on the soft device",
            ));
        }
    };
    if let Some(file) = file {
        file.write(&report)?;
    }
    report.print()
}

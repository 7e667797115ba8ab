//! Several clients add to one number in a server's memory, each by fetch-and-add: none asks the server's
//! program, none waits for another, and none of them loses a count.
//!
//! Without addresses everything runs in this process on the soft device, with the core's queues as they are.
//! With `--listen` and `--connect` it runs over librdmacm, with endpoints.

mod soft;
#[cfg(feature = "librdmacm")]
mod verbs;

use std::time::{Duration, Instant};

use clap::Parser;

use crate::{Failure, Place, output};

/// Clients on the soft device at most: two queue pairs each.
const MOST_SOFT: u32 = 16;

/// Several clients add to one number at the same time, and none loses a count.
///
/// Without addresses both sides run in this process, on a device made of software.
#[derive(Clone, Debug, Parser)]
#[command(name = "atomic_counter", version)]
pub struct Args {
    /// Be the server: wait at this address for the clients, as ADDRESS or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", conflicts_with = "connect")]
    pub listen: Option<Place>,
    /// Be the clients of a server at this address
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<Place>,
    /// How many clients there are; for a server, in all processes together
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// How often each of them adds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// How much they add each time
    #[arg(long, default_value_t = 1)]
    pub step: u64,
}

/// What one client saw.
#[derive(Clone, Copy, Debug)]
struct Seen {
    first: u64,
    last: u64,
    /// How often another client had added in between.
    others: u64,
    took: Duration,
}

/// Looks at the values that come back to one client: they grow, and by how much says who was there in
/// between.
#[derive(Debug)]
struct Watch {
    step: u64,
    seen: Seen,
    rounds: u64,
    began: Instant,
}

impl Watch {
    fn new(step: u64) -> Self {
        let seen = Seen { first: 0, last: 0, others: 0, took: Duration::ZERO };
        Self { step, seen, rounds: 0, began: Instant::now() }
    }

    fn value(&mut self, value: u64) -> Result<(), Failure> {
        if self.rounds == 0 {
            self.seen.first = value;
        } else {
            // With a step of 0 nothing grows.
            let grown = value.wrapping_sub(self.seen.last);
            if grown < self.step {
                return Err(Failure::new(format!(
                    "the counter went from {} to {value} although this client had added {}",
                    self.seen.last, self.step
                )));
            }
            self.seen.others += u64::from(grown > self.step);
        }
        self.seen.last = value;
        self.rounds += 1;
        Ok(())
    }

    fn end(mut self) -> Seen {
        self.seen.took = self.began.elapsed();
        self.seen
    }
}

/// Runs the program.
///
/// # Errors
///
/// [`Failure`] says what cannot be done, or that a count was lost.
pub fn run(args: &Args) -> Result<(), Failure> {
    match (&args.listen, &args.connect) {
        (None, None) if args.clients > MOST_SOFT => Err(Failure::usage(format!(
            "the soft device has room for {MOST_SOFT} clients, and {} were asked for",
            args.clients
        ))),
        (None, None) => {
            let (total, seen) = soft::run(args)?;
            check(args, total)?;
            report(args, Some(total), &seen)
        }
        #[cfg(feature = "librdmacm")]
        (Some(place), _) => {
            let total = verbs::serve(args, place.resolve()?)?;
            check(args, total)?;
            report(args, Some(total), &[])
        }
        #[cfg(feature = "librdmacm")]
        (None, Some(place)) => report(args, None, &verbs::count(args, place.resolve()?)?),
        #[cfg(not(feature = "librdmacm"))]
        _ => Err(Failure::usage(
            "this program was built without the features `verbs` and `declared`: it has the soft device only",
        )),
    }
}

fn check(args: &Args, total: u64) -> Result<(), Failure> {
    let expected = args.rounds.wrapping_mul(args.step).wrapping_mul(args.clients.into());
    if total != expected {
        return Err(Failure::new(format!(
            "the counter holds {total} and {expected} were added: a count was lost, or a client gave up"
        )));
    }
    Ok(())
}

fn report(args: &Args, total: Option<u64>, seen: &[Seen]) -> Result<(), Failure> {
    let mut lines = vec![
        ("clients", args.clients.to_string()),
        ("rounds", format!("{} of each, {} a time", args.rounds, args.step)),
    ];
    for (at, seen) in seen.iter().enumerate() {
        let each = seen.took.as_nanos() / u128::from(args.rounds);
        lines.push((
            if at == 0 { "seen" } else { "" },
            format!(
                "{} to {}, another client in between {} times, {each} ns each",
                seen.first, seen.last, seen.others
            ),
        ));
    }
    if let Some(total) = total {
        lines.push(("counter", format!("{total}, as it should")));
    }
    output::table(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_sees_who_was_there_in_between_and_what_was_lost() {
        let mut watch = Watch::new(2);
        for value in [4, 6, 12] {
            watch.value(value).unwrap();
        }
        assert!(watch.value(13).is_err(), "two were added");
        let seen = watch.end();
        assert_eq!((seen.first, seen.last, seen.others), (4, 12, 1));
    }

    #[test]
    fn no_client_on_the_soft_device_loses_a_count() {
        for clients in [1, 3, 16] {
            let line = format!("atomic_counter --clients {clients} --rounds 300 --step 3");
            run(&Args::parse_from(line.split(' '))).unwrap();
        }
        let many = Args::parse_from(["atomic_counter", "--clients", "17"]);
        assert!(run(&many).unwrap_err().to_string().contains("room for 16"));
    }
}

//! The client: it shares a ping, and memory for it to come back to.

use std::time::{Duration, Instant};

use nanoverbs::endpoint::{Driver, Prepared, Shared};
use nanoverbs::memory::Rights;
use nanoverbs::nanoverbs_core::Part;

use super::end::Stop;
use super::{Args, End, text, wire};
use crate::{Failure, output};

/// A connected client.
pub(super) struct Client<D: Driver> {
    end: End<D>,
    /// What the server reads.
    source: Shared,
    /// What the server writes.
    sink: Shared,
}

/// What became of it.
pub(super) struct Played {
    pub(super) device: String,
    pub(super) pings: u64,
    pub(super) took: Duration,
}

impl<D: Driver> Client<D> {
    pub(super) fn new(mut prepared: Prepared<D, Part>, args: &Args) -> Result<Self, Failure> {
        let source = prepared.share(args.ping_len(), Rights::READ_SOURCE)?;
        let sink = prepared.share(args.ping_len(), Rights::WRITE_TARGET)?;
        Ok(Self { end: End::new(prepared, args)?, source, sink })
    }

    /// Plays all rounds. The drop of the endpoint ends the connection, and that ends the server.
    pub(super) fn play(mut self, args: &Args) -> Result<Played, Failure> {
        let pings = match args.count {
            None | Some(0) => u64::MAX,
            Some(count) => count.into(),
        };
        let (mut ping, mut pong) = (vec![0; args.ping_len()], vec![0; args.ping_len()]);
        let began = Instant::now();
        for round in 0..pings {
            text::fill(&mut ping, round);
            self.round(&ping, &mut pong).map_err(|stop| stop.in_ping("server", round))?;
            if args.verbose {
                output::line(&format!("ping data: {}", text::shown(&pong)))?;
            }
            if args.validate {
                text::check(&pong, round)?;
            }
        }
        Ok(Played { device: self.end.endpoint.device_name(), pings, took: began.elapsed() })
    }

    fn round(&mut self, ping: &[u8], pong: &mut [u8]) -> Result<(), Stop> {
        let len = ping.len() as u64;
        self.source.write_at(0, ping)?;
        // Whole pages were registered; the server gets what it is to read, and to write.
        self.end.say(wire::advertise(self.source.advertise().at(0, len)?))?;
        self.end.hear()?;
        self.end.say(wire::advertise(self.sink.advertise().at(0, len)?))?;
        self.end.hear()?;
        self.sink.read_at(0, pong)?;
        Ok(())
    }
}

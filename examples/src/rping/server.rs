//! The server: it reads a ping out of the client's memory and writes it back into another.

use nanoverbs::endpoint::{Driver, Prepared};
use nanoverbs::nanoverbs_core::{Access, Part, RemoteRegion};

use super::end::{Stop, refused};
use super::{Args, End, text, wire};
use crate::{Failure, output};

/// The server's word for "go ahead": nobody looks at what is in it.
const GO_AHEAD: [u8; wire::LEN] = [0; wire::LEN];

/// A server with its client.
pub(super) struct Server<D: Driver> {
    end: End<D>,
    /// Where pings are read to, and written from.
    ping: Part,
}

impl<D: Driver> Server<D> {
    pub(super) fn new(prepared: Prepared<D, Part>, args: &Args) -> Result<Self, Failure> {
        let mut end = End::new(prepared, args)?;
        let ping = end.buffer(args.room())?;
        Ok(Self { end, ping })
    }

    /// Serves until the client leaves, and says how many pings there were.
    pub(super) fn serve(self, args: &Args) -> Result<u64, Failure> {
        let Self { mut end, mut ping } = self;
        let mut round = 0;
        loop {
            // Between two pings is the time to leave.
            let source = match end.advertised(Access::REMOTE_READ) {
                Err(Stop::Left) => return Ok(round),
                source => source.map_err(|stop| stop.in_ping("client", round))?,
            };
            ping = end
                .serve(ping, source, round, args)
                .map_err(|stop| stop.in_ping("client", round))?;
            round += 1;
        }
    }
}

impl<D: Driver> End<D> {
    /// What the client advertises next, of which this side will make the use that `access` names.
    fn advertised(&mut self, access: Access) -> Result<RemoteRegion, Stop> {
        Ok(wire::advertised(&self.hear()?, access)?)
    }

    fn serve(
        &mut self,
        mut ping: Part,
        source: RemoteRegion,
        round: u64,
        args: &Args,
    ) -> Result<Part, Stop> {
        let len = source.len();
        if len > args.room() as u64 || !ping.set_len(len as usize) {
            return Err(Stop::Wrong(Failure::new(format!(
                "the client's ping has {len} bytes, and this server takes {}; -S says how many",
                args.room()
            ))));
        }
        self.endpoint.post_read(source, ping).map_err(refused)?;
        let ping = self.sent()?;
        if args.verbose {
            output::line(&format!("server ping data: {}", text::shown(&ping)))?;
        }
        if args.validate {
            text::check(&ping, round)?;
        }
        self.say(GO_AHEAD)?;

        let sink = self.advertised(Access::REMOTE_WRITE)?;
        if sink.len() != len {
            return Err(Stop::Wrong(Failure::new(format!(
                "the client wants its ping of {len} bytes back in a memory of {}",
                sink.len()
            ))));
        }
        self.endpoint.post_write(sink, ping).map_err(refused)?;
        let ping = self.sent()?;
        match self.say(GO_AHEAD) {
            // It has its ping, and may have left before this side knew that the word had arrived.
            Ok(()) | Err(Stop::Left) => Ok(ping),
            Err(stop) => Err(stop),
        }
    }
}

//! One end in this process, the other in another, on a real device.

use nanoverbs::cm::Listener;

use super::{Args, Buffers, Found, ends};
use crate::{Failure, Place, output};

/// Waits for a client, lets it read, and is over.
pub(super) fn listen(args: &Args, place: &Place) -> Result<(), Failure> {
    let listener = Listener::bind(place.resolve()?)?;
    eprintln!("readv: listening on {}", listener.local_addr());
    let prepared = args.options().accept::<Buffers>(&listener, args.patience())?;
    let server = ends::advertise(prepared, args)?;
    let device = server.device_name();
    server.wait_for_the_end(args)?;
    output::table(&[
        ("device", device),
        ("served", format!("{} bytes, which the client has read and checked", args.total())),
    ])
}

/// Reads what the server at `place` advertises.
pub(super) fn connect(args: &Args, place: &Place) -> Result<Found, Failure> {
    let prepared = args.options().connect::<Buffers>(place.resolve()?, args.patience())?;
    ends::knock(prepared, args)?.read(args)
}

//! One end in this process, the other in another, on a real device.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use nanoverbs::Deadline;
use nanoverbs::cm::{Connector, Listener, Request};

use super::{Args, Client, Played, Server, output};
use crate::Failure;

/// Serves one client, or one after the other and several at a time.
pub(super) fn serve(args: &Args) -> Result<(), Failure> {
    let any = || Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), args.port));
    let address = args.address.clone().map(|place| place.or_port(args.port));
    let listener = Listener::bind(address.map_or_else(any, |place| place.resolve())?)?;
    eprintln!("rping: listening on {}", listener.local_addr());
    if !args.persistent {
        let served = serve_one(args, listener.accept(Deadline::NEVER)?)?;
        return output::table(&[("served", served)]);
    }
    loop {
        let request = listener.accept(Deadline::NEVER)?;
        let (args, peer) = (args.clone(), request.peer_addr());
        // One client's trouble is not another's.
        thread::spawn(move || match serve_one(&args, request) {
            Ok(served) => eprintln!("rping: {served}"),
            Err(failure) => eprintln!("rping: {peer}: {failure}"),
        });
    }
}

fn serve_one(args: &Args, request: Request) -> Result<String, Failure> {
    let peer = request.peer_addr();
    let server = Server::new(args.options(args.room()).accept_request(request)?, args)?;
    let pings = server.serve(args)?;
    let checked = if args.validate { ", every byte as rping sends it" } else { "" };
    Ok(format!("{pings} pings of {peer}{checked}"))
}

/// Plays with the server.
pub(super) fn play(args: &Args) -> Result<Played, Failure> {
    let Some(place) = args.address.clone() else {
        return Err(Failure::usage("-c wants the address of the server, as in -a 10.0.0.1"));
    };
    let peer = place.or_port(args.port).resolve()?;
    let mut connector = Connector::new();
    if let Some(source) = &args.source {
        let source = source.resolve()?;
        // Any port of that address.
        connector = connector.from_addr(SocketAddr::new(source.ip(), 0));
    }
    let route = connector.resolve(peer, args.patience())?;
    Client::new(args.options(args.ping_len()).connect_route(route)?, args)?.play(args)
}

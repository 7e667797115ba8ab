//! The target in this process and its clients in another, or the other way round, on a real device.

use nanoverbs::Device;
use nanoverbs::cm::ListenOptions;
use nanoverbs::hub::Hub;
use nanoverbs::poller::{IdlePolicy, Serve};

use super::client::Client;
use super::server::{Context, Target};
use super::{Args, MOST, all, print, served};
use crate::{Failure, Place};
use std::time::Duration;

/// Serves whoever comes.
pub(super) fn listen(args: &Args, place: &Place) -> Result<(), Failure> {
    let addr = place.resolve()?;
    let device = Device::at(addr.ip())?;
    let mut hub: Hub<_, Context, MOST> = args.target_options(MOST).hub(&device)?;
    let local = hub.listen(ListenOptions::new(), addr)?;
    eprintln!("target: listening on {local}");
    let idle = IdlePolicy::SpinThenSleep { spins: 1000, longest: Duration::from_secs(1) };
    let poller = args
        .poller(idle)
        .spawn(Serve::new(hub, Target::new(args)))
        .map_err(|refused| Failure::new(refused.to_string()))?;
    print(args, Some(served(poller.join())?), None)
}

/// Is as many clients as were asked for.
pub(super) fn connect(args: &Args, place: &Place) -> Result<(), Failure> {
    let peer = place.resolve()?;
    let clients = (0..args.clients)
        .map(|index| {
            Client::new(args.client_options().connect(peer, args.patience())?, args, index)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let done = all(clients, args)?;
    print(args, None, Some(done))
}

//! Many connections, one thread, one epoll, and no call that blocks but that one.
//!
//! ```text
//! event_loop ADDRESS [CONNECTIONS [MESSAGES]]
//! ```
//!
//! Both ends run in this thread: a server at the address, which sends every message back, and so many
//! clients, each of which sends so many messages, one after the other's answer. However many there are,
//! epoll watches three descriptors: the event channel of all connections, the completion channel of all
//! queue pairs, and the device.
//!
//! This is the hard way, with queues of one's own: [`nanoverbs::Hub`] does the same, see the program `target`.
//!
//! `hub` is the loop's state, `peer` one connection, `epoll` the system calls.

#[cfg(feature = "librdmacm")]
mod epoll;
#[cfg(feature = "librdmacm")]
mod hub;
#[cfg(feature = "librdmacm")]
mod peer;

use std::process::ExitCode;

#[cfg(feature = "librdmacm")]
fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let addr = args.next().ok_or("usage: event_loop ADDRESS [CONNECTIONS [MESSAGES]]")?;
    let addr = addr.parse().or_else(|_| addr.parse().map(|ip| std::net::SocketAddr::new(ip, 0)))?;
    let connections = args.next().map_or(Ok(16), |arg| arg.parse::<usize>())?;
    let messages = args.next().map_or(Ok(1000), |arg| arg.parse::<u32>())?;
    let began = std::time::Instant::now();
    let mut hub = hub::Hub::new(addr, messages)?;
    let mut epoll = epoll::Epoll::new()?;
    let [steps, completions, device] = hub.descriptors();
    epoll.add(steps, 0)?;
    epoll.add(completions, 1)?;
    epoll.add(device, 2)?;
    for _ in 0..connections {
        hub.connect()?;
    }
    loop {
        // Completions until there is none and the next one wakes; then it is right to sleep.
        hub.completions()?;
        if !hub.is_busy() {
            break;
        }
        for which in epoll.wait()? {
            match which {
                0 => hub.steps()?,
                1 => {} // the loop comes to the completions in any case
                _ => hub.device_events()?,
            }
        }
    }
    let (took, answers) = (began.elapsed(), hub.answers());
    println!("{connections} connections, {answers} answers, {took:.1?}, one thread");
    Ok(())
}

#[cfg(not(feature = "librdmacm"))]
fn run() -> Result<(), Box<dyn std::error::Error>> {
    Err("this program needs the feature `verbs` or `declared`".into())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("event_loop: {error}");
            ExitCode::FAILURE
        }
    }
}

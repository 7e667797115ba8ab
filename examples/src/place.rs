//! Addresses, as people write them.

use std::ffi::CString;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::str::FromStr;

use crate::Failure;

/// Where to listen or to connect: `10.0.0.1`, `10.0.0.1:7471`, `fd00::1`, `[fd00::1]:7471`,
/// `fe80::1%eth0`, `host` or `host:7471`.
///
/// ```
/// use nanoverbs_examples::Place;
///
/// let place: Place = "[fd00::1]:7471".parse().unwrap();
/// assert_eq!(place.resolve().unwrap(), "[fd00::1]:7471".parse().unwrap());
/// assert!("10.0.0.1:99999".parse::<Place>().is_err());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    host: String,
    port: Option<u16>,
}

impl Place {
    /// The port when none is given, the same as perftest's.
    pub const DEFAULT_PORT: u16 = 18515;

    /// The same with another port for the case that none was given.
    #[must_use]
    pub fn or_port(mut self, port: u16) -> Self {
        self.port.get_or_insert(port);
        self
    }

    /// The address behind it.
    ///
    /// # Errors
    ///
    /// [`Failure`] when no address has this name.
    pub fn resolve(&self) -> Result<SocketAddr, Failure> {
        let (host, port) = (&self.host, self.port());
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, port));
        }
        if let Some((ip, interface)) = host.split_once('%')
            && let Ok(ip) = ip.parse::<Ipv6Addr>()
        {
            let scope = interface_index(interface).ok_or_else(|| {
                Failure::new(format!(
                    "this machine has no interface {interface}; `ip link` shows those it has"
                ))
            })?;
            return Ok(SocketAddrV6::new(ip, port, 0, scope).into());
        }
        (host.as_str(), port).to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(
            || Failure::new(format!("no address is known for {host}; try with a numeric one")),
        )
    }

    fn port(&self) -> u16 {
        self.port.unwrap_or(Self::DEFAULT_PORT)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or("the closing ] is missing")?;
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':').ok_or("a : belongs behind the ]")?)),
                }
            }
            // More than one colon: an IPv6 address without brackets, and without a port.
            None if text.matches(':').count() == 1 => {
                text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
            }
            None => (text, None),
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err("an address is missing; an example is 10.0.0.1:18515".to_owned());
        }
        let port = match port.map(str::parse) {
            None => None,
            Some(Ok(port @ 1..)) => Some(port),
            Some(_) => return Err("a port is a number from 1 to 65535".to_owned()),
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (&self.host, self.port());
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The number of a network interface.
fn interface_index(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let name = CString::new(name).ok()?;
    // SAFETY: a string that ends with 0.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|&index| index != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        text.parse::<Place>().map(|place| place.to_string())
    }

    #[test]
    fn an_address_without_a_port_gets_the_default() {
        assert_eq!(parsed("10.0.0.1").unwrap(), "10.0.0.1:18515");
        assert_eq!(parsed("fd00::1").unwrap(), "[fd00::1]:18515");
        assert_eq!(parsed("[fd00::1]").unwrap(), "[fd00::1]:18515");
        assert_eq!(parsed("storage-7").unwrap(), "storage-7:18515");
    }

    #[test]
    fn another_default_does_not_replace_a_port_that_was_given() {
        let place = |text: &str| text.parse::<Place>().unwrap().or_port(7174).to_string();
        assert_eq!(place("10.0.0.1"), "10.0.0.1:7174");
        assert_eq!(place("[fd00::1]:7471"), "[fd00::1]:7471");
    }

    #[test]
    fn a_port_is_taken_from_behind_the_colon() {
        assert_eq!(parsed("10.0.0.1:7471").unwrap(), "10.0.0.1:7471");
        assert_eq!(parsed("[fe80::1%eth0]:7471").unwrap(), "[fe80::1%eth0]:7471");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", ":7471", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:70000", "[fd00::1", "[::1]7"]
        {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let place: Place = "fe80::1%nowhere7".parse().unwrap();
        assert!(place.resolve().unwrap_err().to_string().contains("no interface nowhere7"));
    }
}

//! Names to addresses.

use std::net::SocketAddr;

use nanoverbs::cm::{Connector, Listener, Lookup, LookupError};

use crate::ends::{PATIENCE, address, ip};

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f51_what_is_found_can_be_listened_on_and_connected_to() {
    for variable in ["NANOVERBS_RXE_ADDR", "NANOVERBS_RXE_ADDR6"] {
        let host = ip(variable).to_string();
        let here = Lookup::listen_on(&host, "7471").numeric().run().expect("an address");
        let addr = SocketAddr::new(ip(variable), 7471);
        assert_eq!(here.iter().map(|found| found.addr).collect::<Vec<_>>(), [addr]);
        let listener = Listener::bind(here[0].addr).expect("a listener");
        let there = Lookup::connect(&host, "7471").run().expect("an address");
        assert_eq!(there[0].addr, listener.local_addr());
        let mut connector = Connector::new();
        if let Some(source) = there[0].source {
            connector = connector.from_addr(source);
        }
        connector.resolve(there[0].addr, PATIENCE).expect("a route");
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f51_a_service_alone_is_every_address() {
    let found = Lookup::listen("7471").ipv4().run().expect("an address");
    assert_eq!(found[0].addr, SocketAddr::from(([0, 0, 0, 0], 7471)));
    let found = Lookup::listen("7471").ipv6().datagrams().run().expect("an address");
    assert_eq!(found[0].addr, "[::]:7471".parse().expect("an address"));
    let source = SocketAddr::new(address().ip(), 0);
    let found = Lookup::connect(&address().ip().to_string(), "7471").from_addr(source).run();
    assert_eq!(found.expect("an address")[0].source.map(|addr| addr.ip()), Some(source.ip()));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f50_a_name_that_nobody_knows_is_the_resolvers_error() {
    for lookup in [
        Lookup::connect("not-a-number", "7471").numeric(),
        Lookup::connect("10.0.0.1", "no-such-service"),
    ] {
        let error = lookup.run().expect_err("nobody knows it");
        assert!(matches!(error, LookupError::Resolver { .. }), "{error:?}");
        assert!(error.to_string().starts_with("the resolver says: "), "{error}");
    }
}

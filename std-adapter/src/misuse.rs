//! What the compiler refuses of endpoints and hubs. Nothing but documentation tests: each is a function that works, and
//! the same with one line changed, which must not compile. What it refuses of queues is in the core.

/// `$name`: a function with these `$arguments` is fine with `$works`, and with `$refused` fails with `$code`.
macro_rules! refused {
    ($($(#[doc = $doc:literal])* $name:ident, $code:literal, $arguments:literal, $works:literal, $refused:literal;)*) => {$(
        $(#[doc = $doc])*
        ///
        #[doc = concat!("```\n", prelude!(), "fn works(", $arguments, ") {\n", $works, "\n}\n```")]
        ///
        #[doc = concat!("```compile_fail,", $code, "\n", prelude!(), "fn refused(", $arguments, ") {\n", $refused, "\n}\n```")]
        #[allow(dead_code, reason = "holds documentation tests")]
        struct $name;
    )*};
}

macro_rules! prelude {
    () => {
        "# #![allow(unused)]\n\
         # use nanoverbs::endpoint::*;\n\
         # use nanoverbs::{Endpoint, hub::{Hub, Key}, memory::Rights};\n\
         # use nanoverbs_core::{Block, op};\n\
         # use std::sync::Arc;\n\
         # use std::time::Duration;\n"
    };
}

refused! {
    /// A buffer is not touched while it is posted (F16).
    UseOfAPostedBuffer, "E0382",
        "endpoint: &mut Endpoint<Soft, Block>, mut block: Block",
        "block[0] = 1;\nendpoint.post_send(block);", "endpoint.post_send(block);\nblock[0] = 1;";
    /// Nor while it waits for a message.
    UseOfAPostedReceive, "E0382",
        "endpoint: &mut Endpoint<Soft, Block>, block: Block",
        "println!(\"{}\", block[0]);\nendpoint.post_recv(block);",
        "endpoint.post_recv(block);\nprintln!(\"{}\", block[0]);";
    /// A closed endpoint posts nothing.
    UseAfterTheEnd, "E0382",
        "mut endpoint: Endpoint<Soft, Block>, block: Block",
        "endpoint.post_send(block);\nlet closed = endpoint.close(Duration::from_secs(1));",
        "let closed = endpoint.close(Duration::from_secs(1));\nendpoint.post_send(block);";
    /// Nor does one that is not connected yet send (F23).
    SendBeforeTheConnection, "E0599",
        "mut ready: Ready<Soft, Block>, block: Block",
        "ready.post_recv(block);", "ready.post_send(block);";
    /// Memory that a peer may touch is never seen as bytes (F43).
    BytesOfSharedMemory, "E0608",
        "shared: Shared", "let mut bytes = [0; 8];\nshared.read_at(0, &mut bytes);", "let byte = shared[0];";
    /// A request holds shared memory by its owner, not by a borrow that may end first.
    BufferOfBorrowedMemory, "E0599",
        "shared: Shared", "let shared = Arc::new(shared);\nlet piece = shared.buffer(0, 8);",
        "let piece = shared.buffer(0, 8);";
    /// A half belongs to one thread (F74).
    HalfOfTwoThreads, "E0277",
        "endpoint: &mut Endpoint<Soft, Block>",
        "let halves = endpoint.split();\nstd::thread::scope(|scope| {\n\
         let send = halves.send;\nscope.spawn(move || send.in_flight());\n});",
        "let halves = endpoint.split();\nstd::thread::scope(|scope| {\n\
         let send = &halves.send;\nscope.spawn(move || send.in_flight());\n});";
    /// And the endpoint is whole again only when both are done.
    EndpointBesideItsHalves, "E0499",
        "endpoint: &mut Endpoint<Soft, Block>, block: Block",
        "let halves = endpoint.split();\nhalves.send.in_flight();\nendpoint.post_send(block);",
        "let halves = endpoint.split();\nendpoint.post_send(block);\nhalves.send.in_flight();";
    /// A buffer is not touched while a member of a hub has posted it either (F16).
    UseOfABufferPostedThroughAHub, "E0382",
        "hub: &mut Hub<Soft, Block, 4>, key: Key, mut block: Block",
        "block[0] = 1;\nhub.peer(key).unwrap().post_send(block);",
        "hub.peer(key).unwrap().post_send(block);\nblock[0] = 1;";
    /// A member is lent out until the next poll and no longer: what that ends may be the member itself.
    PeerOverAPoll, "E0499",
        "hub: &mut Hub<Soft, Block, 4>, key: Key, block: Block",
        "hub.poll();\nhub.peer(key).unwrap().post_send(block);",
        "let mut peer = hub.peer(key).unwrap();\nhub.poll();\npeer.post_send(block);";
    /// Two members are not lent out at a time: they share the arrays in which requests are built.
    TwoPeersAtATime, "E0499",
        "hub: &mut Hub<Soft, Block, 4>, keys: [Key; 2], block: Block",
        "hub.peer(keys[1]).unwrap();\nhub.peer(keys[0]).unwrap().post_send(block);",
        "let mut peer = hub.peer(keys[0]).unwrap();\nhub.peer(keys[1]).unwrap();\npeer.post_send(block);";
    /// A member that is on its way keeps its hub until it is started.
    PollWhileAMemberIsReadied, "E0499",
        "hub: &mut Hub<Soft, Block, 4>, request: nanoverbs::hub::Request<Soft>",
        "let ready = hub.accept(request).unwrap().no_receives();\nlet key = ready.start();\nhub.poll();",
        "let ready = hub.accept(request).unwrap().no_receives();\nhub.poll();\nlet key = ready.start();";
    /// A receive waits for nothing: there is no fence to ask for (F27).
    FenceOnAReceive, "E0061",
        "endpoint: &mut Endpoint<Soft, Block>, block: Block",
        "endpoint.post_recv(block);", "endpoint.post_recv(op::Send::new().after_reads(), block);";
}

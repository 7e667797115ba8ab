//! What the compiler refuses of endpoints. Nothing but documentation tests: each is a function that works, and
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
         # use nanoverbs::{Endpoint, memory::Rights};\n\
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
    /// A receive waits for nothing: there is no fence to ask for (F27).
    FenceOnAReceive, "E0061",
        "endpoint: &mut Endpoint<Soft, Block>, block: Block",
        "endpoint.post_recv(block);", "endpoint.post_recv(op::Send::new().after_reads(), block);";
}

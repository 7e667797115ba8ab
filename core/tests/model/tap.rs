//! A port that notes what passes through it, in front of the soft device.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;

use nanoverbs_core::abi::{RecvWr, SendWr, Wc, send_flags};
use nanoverbs_core::port::{PollPort, RecvPort, SendPort};

use crate::transport::Transport;

/// What a post came to.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    /// One a request of the chain.
    pub(crate) ids: Vec<u64>,
    pub(crate) signaled: Vec<bool>,
    pub(crate) code: i32,
    /// Requests before the bad one; `None` when it was not named.
    pub(crate) accepted: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) post: RefCell<Option<Post>>,
    pub(crate) polled: RefCell<VecDeque<Wc>>,
}

/// `T` is the kind of queue pair that it leads to; a completion queue has none.
#[derive(Debug)]
pub(crate) struct Tap<P, T = ()> {
    port: P,
    log: Rc<Log>,
    kind: PhantomData<T>,
}

impl<P, T> Tap<P, T> {
    pub(crate) fn new(port: P) -> (Self, Rc<Log>) {
        let log = Rc::<Log>::default();
        (Self { port, log: Rc::clone(&log), kind: PhantomData }, log)
    }

    pub(crate) const fn port(&self) -> &P {
        &self.port
    }
}

macro_rules! post {
    ($self:ident, $first:ident, $bad:ident, $post:ident, $signaled:expr) => {{
        let mut post = Post { ids: vec![], signaled: vec![], code: 0, accepted: None };
        let (mut requests, mut request) = (vec![], $first);
        while !request.is_null() {
            requests.push(request);
            // SAFETY: a queue promises a valid chain that ends with null.
            let wr = unsafe { &*request };
            post.ids.push(wr.wr_id);
            post.signaled.push($signaled(wr));
            request = wr.next;
        }
        // SAFETY: the caller's promise, passed on.
        post.code = unsafe { $self.port.$post($first, $bad) };
        if post.code != 0 {
            post.accepted = requests.iter().position(|request| *request == *$bad);
        }
        let code = post.code;
        assert!($self.log.post.replace(Some(post)).is_none(), "a post that nobody asked for");
        code
    }};
}

// SAFETY: the port behind it keeps the promises.
unsafe impl<P: SendPort, T: Transport> SendPort for Tap<P, T> {
    const DATAGRAM: bool = T::DATAGRAM;

    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        post!(self, first, bad, post_send, |wr: &SendWr| wr.send_flags & send_flags::SIGNALED != 0)
    }

    fn is_gone(&self) -> bool {
        self.port.is_gone()
    }
}

// SAFETY: the port behind it keeps the promises.
unsafe impl<P: RecvPort, T: Transport> RecvPort for Tap<P, T> {
    const DATAGRAM: bool = T::DATAGRAM;

    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        post!(self, first, bad, post_recv, |_: &RecvWr| true)
    }

    fn is_gone(&self) -> bool {
        self.port.is_gone()
    }
}

// SAFETY: the port behind it keeps the promises.
unsafe impl<P: PollPort> PollPort for Tap<P> {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let count = self.port.poll(into);
        self.log.polled.borrow_mut().extend(into.iter().take(count.max(0) as usize).copied());
        count
    }
}

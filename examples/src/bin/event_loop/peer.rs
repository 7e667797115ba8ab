//! One connection, from its queue pair on.

use std::error::Error;
use std::sync::Arc;

use nanoverbs::QueuePair;
use nanoverbs::cm::Connection;
use nanoverbs::nanoverbs_core::{
    Block, Completion, Joined, Member, Outcome, Pool, RecvLink, RecvQueue, RecvSlots, SendLink,
    SendQueue, SendSlots, op,
};
use nanoverbs::port::{RecvPort, SendPort};

/// Sends and receives in flight of one connection.
pub(crate) const DEPTH: usize = 4;

/// The arrays in which requests are built: one set for all connections of the thread.
pub(crate) struct Links {
    pub(crate) send: SendLink<'static, 2, 1>,
    pub(crate) recv: RecvLink<'static, 2, 1>,
}

/// A connection. The fields go from top to bottom: ports before their queue pair.
pub(crate) struct Peer {
    sends: SendQueue<'static, SendPort, Block, DEPTH>,
    receives: RecvQueue<'static, RecvPort, Block, DEPTH>,
    connection: Option<Connection>,
    _queue_pair: Arc<QueuePair>,
    member: Member,
    /// Messages that were faster than the news that the connection stands.
    early: Vec<Block>,
    /// Messages that a client has yet to send; `None` for the server's end.
    left: Option<u32>,
    ended: bool,
}

impl Peer {
    /// Its queues, with receives posted.
    pub(crate) fn new(
        queue_pair: &Arc<QueuePair>,
        joined: Joined,
        messages: Option<u32>,
        pool: &mut Pool,
        links: &mut Links,
    ) -> Result<Self, Box<dyn Error>> {
        let Joined { member, send, recv } = joined;
        // SAFETY: the ports stand above the queue pair in this structure, and sends are refused until
        // the connection stands.
        let (send_port, recv_port) = unsafe { (queue_pair.send_port()?, queue_pair.recv_port()?) };
        // A server that runs for ever would give the slots to the next connection (`into_storage`).
        let send_slots = Box::leak(Box::new(SendSlots::new()));
        let recv_slots = Box::leak(Box::new(RecvSlots::new()));
        let mut peer = Self {
            sends: SendQueue::with_seat(send_port, send_slots, queue_pair.send_config(), send)?,
            receives: RecvQueue::with_seat(recv_port, recv_slots, queue_pair.recv_config(), recv)?,
            connection: None,
            _queue_pair: Arc::clone(queue_pair),
            member,
            early: Vec::new(),
            left: messages,
            ended: false,
        };
        for _ in 0..DEPTH / 2 {
            peer.receive(pool.allocate().ok_or("no block is free")?, links)?;
        }
        Ok(peer)
    }

    /// It stands: a client begins.
    pub(crate) fn connected(
        &mut self,
        connection: Connection,
        pool: &mut Pool,
        links: &mut Links,
    ) -> Result<(), Box<dyn Error>> {
        self.connection = Some(connection);
        self.sends.open();
        for block in std::mem::take(&mut self.early) {
            self.send(block, links)?;
        }
        self.next_message(pool, links)
    }

    /// Looks what became of the connection.
    pub(crate) fn look(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(connection) = &self.connection else { return Ok(()) };
        while connection.poll_event()?.is_some() {}
        self.ended = connection.has_ended();
        Ok(())
    }

    /// Whether it has ended and nothing is in flight any more.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.sends.in_flight() == 0 && self.receives.in_flight() == 0
    }

    /// Destroys the queue pair, and leaves the membership to be ended.
    pub(crate) fn into_member(self) -> Member {
        self.member
    }

    /// A send has ended. Its block goes back to the pool.
    pub(crate) fn sent(&mut self, completion: Completion) -> Result<(), Box<dyn Error>> {
        self.sends.retire(completion)?;
        while let Some(ended) = self.sends.take() {
            if let Outcome::Failed(failure) = ended.outcome {
                return Err(failure.to_string().into());
            }
        }
        Ok(())
    }

    /// A receive has ended. The server sends the message back, a client its next one. Says how many
    /// answers came.
    pub(crate) fn received(
        &mut self,
        completion: Completion,
        pool: &mut Pool,
        links: &mut Links,
    ) -> Result<u32, Box<dyn Error>> {
        self.receives.retire(completion)?;
        let mut answers = 0;
        while let Some(ended) = self.receives.take() {
            let mut block = match ended.outcome {
                Outcome::Done(message) => {
                    let mut block = ended.context;
                    block.set_len(message.byte_len().unwrap_or(0) as usize)?;
                    block
                }
                Outcome::Failed(failure) => return Err(failure.to_string().into()),
                // The end: the block goes back to the pool.
                Outcome::Flushed | Outcome::Abandoned => continue,
            };
            match self.left {
                None => {
                    match self.connection {
                        Some(_) => self.send(block, links)?,
                        None => self.early.push(block),
                    }
                    block = pool.allocate().ok_or("no block is free")?;
                }
                Some(_) => {
                    answers += 1;
                    block.set_len(block.capacity())?;
                    self.next_message(pool, links)?;
                }
            }
            self.receive(block, links)?;
        }
        Ok(answers)
    }

    /// A client's next message, or its goodbye.
    fn next_message(&mut self, pool: &mut Pool, links: &mut Links) -> Result<(), Box<dyn Error>> {
        match &mut self.left {
            None => Ok(()),
            Some(0) => self.connection.as_ref().map_or(Ok(()), |it| Ok(it.disconnect()?)),
            Some(left) => {
                *left -= 1;
                let mut block = pool.allocate().ok_or("no block is free")?;
                block.set_len(4)?;
                block.copy_from_slice(&left.to_be_bytes());
                self.send(block, links)
            }
        }
    }

    fn send(&mut self, block: Block, links: &mut Links) -> Result<(), Box<dyn Error>> {
        let mut chain = self.sends.reserve(&mut links.send, 1)?;
        chain.push(op::Send::new().signaled(), block).map_err(|refused| refused.error)?;
        chain.submit().map_err(|error| error.to_string())?;
        Ok(())
    }

    fn receive(&mut self, block: Block, links: &mut Links) -> Result<(), Box<dyn Error>> {
        // One that has ended takes no receives.
        let Ok(mut chain) = self.receives.reserve(&mut links.recv, 1) else { return Ok(()) };
        chain.push(block).map_err(|refused| refused.error)?;
        chain.submit().map_err(|error| error.to_string())?;
        Ok(())
    }
}

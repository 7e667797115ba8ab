//! The structures that a device reads and writes, as C lays them out.
//!
//! Twins of `ibv_sge`, `ibv_send_wr`, `ibv_recv_wr` and `ibv_wc`. The adapter proves size, alignment
//! and every offset against the C headers at compile time. Programs meet these types when they
//! write a port, or post by hand through the unsafe calls; nobody else needs them.
//!
//! Invariant: a number that a device wrote is data. Codes are plain integers here and are read
//! through types that keep an unknown value ([`WcStatus::Other`]), never through a Rust enum.

use core::ptr;

/// The local key of a registered region: what a device asks for before it touches memory on this
/// side. It is worthless to a peer, see [`RKey`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(transparent)]
pub struct LKey(u32);

impl LKey {
    /// The key as the device writes it.
    pub const fn from_raw(key: u32) -> Self {
        Self(key)
    }

    /// The key as the device reads it.
    pub const fn to_raw(self) -> u32 {
        self.0
    }
}

/// The remote key of a registered region: who knows it may reach the region from afar, as far as
/// its access rights go.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(transparent)]
pub struct RKey(u32);

impl RKey {
    /// The key as the device writes it.
    pub const fn from_raw(key: u32) -> Self {
        Self(key)
    }

    /// The key that a window has after this one: the low eight bits count, the others are its own.
    #[doc(alias = "ibv_inc_rkey")]
    #[must_use]
    pub const fn next(self) -> Self {
        Self((self.0 & !0xff) | (self.0.wrapping_add(1) & 0xff))
    }

    /// The key as the device reads it.
    pub const fn to_raw(self) -> u32 {
        self.0
    }
}

/// A queue pair's number, 24 bits, unique on its device.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(transparent)]
pub struct QpNum(u32);

impl QpNum {
    /// The number as the device writes it.
    pub const fn from_raw(number: u32) -> Self {
        Self(number)
    }

    /// The number as the device reads it.
    pub const fn to_raw(self) -> u32 {
        self.0
    }
}

/// An address in an [`Sge`]: a pointer in eight bytes, on every target.
///
/// It stays a pointer, not a number, so that a device made of software may follow it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Addr {
    #[cfg(all(target_pointer_width = "32", target_endian = "big"))]
    high: u32,
    pointer: *mut u8,
    #[cfg(all(target_pointer_width = "32", target_endian = "little"))]
    high: u32,
}

impl Addr {
    /// The address of `pointer`.
    #[inline(always)]
    pub const fn new(pointer: *mut u8) -> Self {
        Self {
            pointer,
            #[cfg(target_pointer_width = "32")]
            high: 0,
        }
    }

    /// The pointer that this address was made of.
    #[inline(always)]
    pub const fn pointer(self) -> *mut u8 {
        self.pointer
    }
}

/// One piece of local memory, `ibv_sge`.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_sge")]
#[repr(C)]
pub struct Sge {
    /// Where the piece starts.
    pub addr: Addr,
    /// Its length in bytes.
    pub length: u32,
    /// The key of the region that holds it.
    pub lkey: LKey,
}

impl Sge {
    /// A piece of no length.
    pub const EMPTY: Self = Self::new(ptr::null_mut(), 0, LKey(0));

    /// The piece of `length` bytes at `pointer`, in the region that `lkey` names.
    #[inline(always)]
    pub const fn new(pointer: *mut u8, length: u32, lkey: LKey) -> Self {
        Self { addr: Addr::new(pointer), length, lkey }
    }
}

/// Eight bytes that hold `first` in front of `second`.
#[inline(always)]
pub(crate) const fn pair(first: u32, second: u32) -> u64 {
    if cfg!(target_endian = "little") {
        (first as u64) | ((second as u64) << 32)
    } else {
        (second as u64) | ((first as u64) << 32)
    }
}

/// What [`pair`] was made of.
#[inline(always)]
pub(crate) const fn halves(pair: u64) -> (u32, u32) {
    let (low, high) = (pair as u32, (pair >> 32) as u32);
    if cfg!(target_endian = "little") { (low, high) } else { (high, low) }
}

/// The target of a READ or WRITE in a [`SendWr`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RdmaTarget {
    /// Address in the peer's memory.
    pub remote_addr: u64,
    /// The peer's key for it.
    pub rkey: RKey,
    /// Where a datagram has its queue key. Written, so that a device which takes the request for one reads a
    /// number.
    padding: u32,
}

impl RdmaTarget {
    /// What lies at `remote_addr` in the peer's memory, by its key.
    #[inline(always)]
    pub const fn new(remote_addr: u64, rkey: RKey) -> Self {
        Self { remote_addr, rkey, padding: 0 }
    }
}

/// The target and operands of an atomic in a [`SendWr`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AtomicTarget {
    /// Address of the eight bytes in the peer's memory.
    pub remote_addr: u64,
    /// The value to add, or to compare with.
    pub compare_add: u64,
    /// The value to store when the comparison holds.
    pub swap: u64,
    /// The peer's key.
    pub rkey: RKey,
}

/// The destination of a datagram in a [`SendWr`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UdTarget {
    /// The address handle, `ibv_ah *`.
    pub ah: *mut (),
    /// The destination's queue pair number.
    pub remote_qpn: u32,
    /// The destination's queue key.
    pub remote_qkey: u32,
}

/// What depends on the operation in a [`SendWr`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union Target {
    /// READ and WRITE.
    pub rdma: RdmaTarget,
    /// Fetch-and-add, compare-and-swap.
    pub atomic: AtomicTarget,
    /// Datagrams.
    pub ud: UdTarget,
}

/// The part of a [`SendWr`] that binds a memory window.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BindMw {
    /// The window, `ibv_mw *`.
    pub mw: *mut (),
    /// The key that the window will have.
    pub rkey: RKey,
    /// The region that it opens, `ibv_mr *`.
    pub mr: *mut (),
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub length: u64,
    /// Access flags of the window.
    pub mw_access_flags: u32,
}

impl core::fmt::Debug for Target {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}

/// A request for the send queue, `ibv_send_wr`: 128 bytes.
///
/// Fields that an operation does not use keep whatever they held; the device does not read them.
#[derive(Clone, Copy)]
#[doc(alias = "ibv_send_wr")]
#[repr(C)]
pub struct SendWr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The next request of the chain, null at its end.
    pub next: *mut Self,
    /// The pieces.
    pub sg_list: *mut Sge,
    /// How many pieces.
    pub num_sge: i32,
    /// One of [`opcode`].
    pub opcode: u32,
    /// Bits of [`send_flags`].
    pub send_flags: u32,
    /// Immediate data in network order, or the key to invalidate.
    pub imm_data: u32,
    /// What depends on the operation.
    pub target: Target,
    /// Of XRC, which this library does not do.
    pub xrc_remote_srqn: u32,
    /// Of a memory window bind.
    pub bind_mw: BindMw,
}

impl SendWr {
    /// A request with every field zero.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        next: ptr::null_mut(),
        sg_list: ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        imm_data: 0,
        target: Target {
            atomic: AtomicTarget { remote_addr: 0, compare_add: 0, swap: 0, rkey: RKey(0) },
        },
        xrc_remote_srqn: 0,
        bind_mw: BindMw {
            mw: ptr::null_mut(),
            rkey: RKey(0),
            mr: ptr::null_mut(),
            addr: 0,
            length: 0,
            mw_access_flags: 0,
        },
    };
}

impl core::fmt::Debug for SendWr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SendWr")
            .field("wr_id", &self.wr_id)
            .field("num_sge", &self.num_sge)
            .field("opcode", &self.opcode)
            .field("send_flags", &self.send_flags)
            .finish_non_exhaustive()
    }
}

/// A request for the receive queue, `ibv_recv_wr`: 32 bytes.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_recv_wr")]
#[repr(C)]
pub struct RecvWr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The next request of the chain, null at its end.
    pub next: *mut Self,
    /// The pieces.
    pub sg_list: *mut Sge,
    /// How many pieces.
    pub num_sge: i32,
}

impl RecvWr {
    /// A request with every field zero.
    pub const EMPTY: Self =
        Self { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
}

/// A completion, `ibv_wc`: 48 bytes.
///
/// When `status` is not 0, only `wr_id`, `status`, `qp_num` and `vendor_err` mean anything.
#[derive(Clone, Copy, Debug, Default)]
#[doc(alias = "ibv_wc")]
#[repr(C)]
pub struct Wc {
    /// The id of the request.
    pub wr_id: u64,
    /// The status, see [`WcStatus`].
    pub status: u32,
    /// One of [`wc_opcode`].
    pub opcode: u32,
    /// A code of the device's maker.
    pub vendor_err: u32,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data in network order, or the key that was invalidated.
    pub imm_data: u32,
    /// The local queue pair.
    pub qp_num: u32,
    /// The remote queue pair, for datagrams.
    pub src_qp: u32,
    /// Bits of [`wc_flags`].
    pub wc_flags: u32,
    /// Partition key index.
    pub pkey_index: u16,
    /// Source local id.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Path bits.
    pub dlid_path_bits: u8,
}

impl Wc {
    /// A completion with every field zero.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        status: 0,
        opcode: 0,
        vendor_err: 0,
        byte_len: 0,
        imm_data: 0,
        qp_num: 0,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    };
}

/// Operation codes of a [`SendWr`], `ibv_wr_opcode`.
#[doc(alias = "ibv_wr_opcode")]
pub mod opcode {
    /// RDMA WRITE.
    pub const RDMA_WRITE: u32 = 0;
    /// RDMA WRITE that also ends a receive at the peer.
    pub const RDMA_WRITE_WITH_IMM: u32 = 1;
    /// SEND.
    pub const SEND: u32 = 2;
    /// SEND with four bytes beside the message.
    pub const SEND_WITH_IMM: u32 = 3;
    /// RDMA READ.
    pub const RDMA_READ: u32 = 4;
    /// Compare and swap of eight bytes.
    pub const ATOMIC_CMP_AND_SWP: u32 = 5;
    /// Fetch and add of eight bytes.
    pub const ATOMIC_FETCH_AND_ADD: u32 = 6;
    /// Local invalidate.
    pub const LOCAL_INV: u32 = 7;
    /// Bind a memory window.
    pub const BIND_MW: u32 = 8;
    /// SEND that invalidates a key of the peer.
    pub const SEND_WITH_INV: u32 = 9;
}

/// Flags of a [`SendWr`], `ibv_send_flags`.
#[doc(alias = "ibv_send_flags")]
pub mod send_flags {
    /// Wait until the READs and atomics before it are done.
    pub const FENCE: u32 = 1;
    /// Completes with an entry in the completion queue.
    pub const SIGNALED: u32 = 1 << 1;
    /// Wakes a peer that armed for solicited completions only.
    pub const SOLICITED: u32 = 1 << 2;
    /// The data is copied during the post.
    pub const INLINE: u32 = 1 << 3;
}

/// Operation codes of a [`Wc`], `ibv_wc_opcode`.
#[doc(alias = "ibv_wc_opcode")]
pub mod wc_opcode {
    /// SEND.
    pub const SEND: u32 = 0;
    /// RDMA WRITE.
    pub const RDMA_WRITE: u32 = 1;
    /// RDMA READ.
    pub const RDMA_READ: u32 = 2;
    /// Compare and swap.
    pub const COMP_SWAP: u32 = 3;
    /// Fetch and add.
    pub const FETCH_ADD: u32 = 4;
    /// Memory window bind.
    pub const BIND_MW: u32 = 5;
    /// Local invalidate.
    pub const LOCAL_INV: u32 = 6;
    /// A message arrived.
    pub const RECV: u32 = 1 << 7;
    /// A WRITE with immediate arrived; the receive's buffer is untouched.
    pub const RECV_RDMA_WITH_IMM: u32 = (1 << 7) + 1;
}

/// Flags of a [`Wc`], `ibv_wc_flags`.
#[doc(alias = "ibv_wc_flags")]
pub mod wc_flags {
    /// The first 40 bytes of the buffer are a global routing header.
    pub const GRH: u32 = 1;
    /// `imm_data` holds an immediate.
    pub const WITH_IMM: u32 = 1 << 1;
    /// `imm_data` holds a key that was invalidated.
    pub const WITH_INV: u32 = 1 << 3;
}

/// Access rights of a region, `ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[doc(alias = "ibv_access_flags")]
#[repr(transparent)]
pub struct Access(u32);

impl Access {
    /// The device may read it for this side's requests; nothing more.
    pub const LOCAL_READ: Self = Self(0);
    /// The device may write it: receives, and the local end of READs and atomics.
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer may WRITE to it.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// A peer may READ from it.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// A peer may work on it with atomics.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Memory windows may be opened on it.
    pub const MW_BIND: Self = Self(1 << 4);
    /// Its pages are brought in when the device wants them, instead of staying in memory.
    pub const ON_DEMAND: Self = Self(1 << 6);

    /// The bits as C has them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Rights made of C's bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Both rights.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every right of `other` is here.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a peer can reach the region in any way.
    pub const fn is_remote(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_READ.0 | Self::REMOTE_ATOMIC.0) != 0
    }
}

/// What became of a request, `ibv_wc_status`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[doc(alias = "ibv_wc_status")]
#[non_exhaustive]
pub enum WcStatus {
    /// Done.
    Success,
    /// `IBV_WC_LOC_LEN_ERR`: the message is longer than the buffer, or than the path allows.
    LocalLength,
    /// `IBV_WC_LOC_QP_OP_ERR`: this side's device could not carry the request out.
    LocalQpOperation,
    /// `IBV_WC_LOC_PROT_ERR`: a piece lies outside its region, or its key is wrong.
    LocalProtection,
    /// `IBV_WC_WR_FLUSH_ERR`: the queue pair had failed or was closing; the request did nothing.
    Flushed,
    /// `IBV_WC_MW_BIND_ERR`: a memory window could not be bound.
    WindowBind,
    /// `IBV_WC_BAD_RESP_ERR`: the peer answered with something unexpected.
    BadResponse,
    /// `IBV_WC_LOC_ACCESS_ERR`: a region lacks the right that the request needs.
    LocalAccess,
    /// `IBV_WC_REM_INV_REQ_ERR`: the peer found the request invalid.
    RemoteInvalidRequest,
    /// `IBV_WC_REM_ACCESS_ERR`: the peer's region does not allow it, or the key is wrong.
    RemoteAccess,
    /// `IBV_WC_REM_OP_ERR`: the peer could not carry it out.
    RemoteOperation,
    /// `IBV_WC_RETRY_EXC_ERR`: the peer does not answer.
    RetryExceeded,
    /// `IBV_WC_RNR_RETRY_EXC_ERR`: the peer has no receive posted.
    RnrRetryExceeded,
    /// `IBV_WC_REM_ABORT_ERR`: the peer aborted.
    RemoteAborted,
    /// `IBV_WC_FATAL_ERR`: the device failed.
    Fatal,
    /// `IBV_WC_RESP_TIMEOUT_ERR`: no response in time.
    ResponseTimeout,
    /// `IBV_WC_GENERAL_ERR`: something else.
    General,
    /// A code that this version does not know.
    Other(u32),
}

impl WcStatus {
    /// The meaning of a device's code.
    pub const fn from_raw(code: u32) -> Self {
        match code {
            0 => Self::Success,
            1 => Self::LocalLength,
            2 => Self::LocalQpOperation,
            4 => Self::LocalProtection,
            5 => Self::Flushed,
            6 => Self::WindowBind,
            7 => Self::BadResponse,
            8 => Self::LocalAccess,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::RetryExceeded,
            13 => Self::RnrRetryExceeded,
            16 => Self::RemoteAborted,
            19 => Self::Fatal,
            20 => Self::ResponseTimeout,
            21 => Self::General,
            other => Self::Other(other),
        }
    }

    /// The code that a device writes.
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::LocalLength => 1,
            Self::LocalQpOperation => 2,
            Self::LocalProtection => 4,
            Self::Flushed => 5,
            Self::WindowBind => 6,
            Self::BadResponse => 7,
            Self::LocalAccess => 8,
            Self::RemoteInvalidRequest => 9,
            Self::RemoteAccess => 10,
            Self::RemoteOperation => 11,
            Self::RetryExceeded => 12,
            Self::RnrRetryExceeded => 13,
            Self::RemoteAborted => 16,
            Self::Fatal => 19,
            Self::ResponseTimeout => 20,
            Self::General => 21,
            Self::Other(code) => code,
        }
    }
}

impl core::fmt::Display for WcStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = match self {
            Self::Success => "success",
            Self::LocalLength => "local length error",
            Self::LocalQpOperation => "local queue pair operation error",
            Self::LocalProtection => "local protection error",
            Self::Flushed => "flushed",
            Self::WindowBind => "memory window bind error",
            Self::BadResponse => "bad response",
            Self::LocalAccess => "local access error",
            Self::RemoteInvalidRequest => "the peer found the request invalid",
            Self::RemoteAccess => "the peer's region does not allow it",
            Self::RemoteOperation => "the peer could not carry it out",
            Self::RetryExceeded => "the peer does not answer",
            Self::RnrRetryExceeded => "the peer has no receive posted",
            Self::RemoteAborted => "the peer aborted",
            Self::Fatal => "the device failed",
            Self::ResponseTimeout => "no response in time",
            Self::General => "general error",
            Self::Other(code) => return write!(f, "unknown status {code}"),
        };
        f.write_str(text)
    }
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<SendWr>() == 128 && size_of::<RecvWr>() == 32);
    assert!(size_of::<Wc>() == 48);
};
const _: () = assert!(size_of::<Sge>() == 16);

//! Proof, at compile time, that the core's structures are laid out as C's.
//!
//! Swapping two fields of one of them stops the build here.

use core::mem::{align_of, offset_of, size_of};

use nanoverbs_core::abi;
use static_assertions::const_assert_eq;

use super::ffi;

macro_rules! assert_same_layout {
    ($ours:ty, $theirs:ty, { $($our:tt $(. $our_more:ident)* => $their:ident $(. $their_more:ident)*),* $(,)? }) => {
        const_assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
        const_assert_eq!(align_of::<$ours>(), align_of::<$theirs>());
        $(const_assert_eq!(
            offset_of!($ours, $our $(. $our_more)*),
            offset_of!($theirs, $their $(. $their_more)*)
        );)*
    };
}

assert_same_layout!(abi::Sge, ffi::ibv_sge, {
    addr => addr,
    length => length,
    lkey => lkey,
});

assert_same_layout!(abi::RdmaTarget, ffi::rdma_t, {
    remote_addr => remote_addr,
    rkey => rkey,
});

assert_same_layout!(abi::AtomicTarget, ffi::atomic_t, {
    remote_addr => remote_addr,
    compare_add => compare_add,
    swap => swap,
    rkey => rkey,
});

assert_same_layout!(abi::UdTarget, ffi::ud_t, {
    ah => ah,
    remote_qpn => remote_qpn,
    remote_qkey => remote_qkey,
});

assert_same_layout!(abi::Target, ffi::wr_t, { rdma => rdma, atomic => atomic, ud => ud });

assert_same_layout!(abi::BindMw, ffi::bind_mw_t, {
    mw => mw,
    rkey => rkey,
    mr => bind_info.mr,
    addr => bind_info.addr,
    length => bind_info.length,
    mw_access_flags => bind_info.mw_access_flags,
});

assert_same_layout!(abi::SendWr, ffi::ibv_send_wr, {
    wr_id => wr_id,
    next => next,
    sg_list => sg_list,
    num_sge => num_sge,
    opcode => opcode,
    send_flags => send_flags,
    imm_data => imm_data_invalidated_rkey_union,
    target => wr,
    xrc_remote_srqn => qp_type,
    bind_mw => bind_mw_tso_union,
});

assert_same_layout!(abi::RecvWr, ffi::ibv_recv_wr, {
    wr_id => wr_id,
    next => next,
    sg_list => sg_list,
    num_sge => num_sge,
});

assert_same_layout!(abi::Wc, ffi::ibv_wc, {
    wr_id => wr_id,
    status => status,
    opcode => opcode,
    vendor_err => vendor_err,
    byte_len => byte_len,
    imm_data => imm_data_invalidated_rkey_union,
    qp_num => qp_num,
    src_qp => src_qp,
    wc_flags => wc_flags,
    pkey_index => pkey_index,
    slid => slid,
    sl => sl,
    dlid_path_bits => dlid_path_bits,
});

// The numbers too: what the core writes is what the headers say.
const_assert_eq!(abi::opcode::RDMA_WRITE, ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE);
const_assert_eq!(abi::opcode::SEND, ffi::ibv_wr_opcode::IBV_WR_SEND);
const_assert_eq!(abi::opcode::RDMA_READ, ffi::ibv_wr_opcode::IBV_WR_RDMA_READ);
const_assert_eq!(abi::opcode::LOCAL_INV, ffi::ibv_wr_opcode::IBV_WR_LOCAL_INV);
const_assert_eq!(abi::opcode::BIND_MW, ffi::ibv_wr_opcode::IBV_WR_BIND_MW);
const_assert_eq!(abi::opcode::SEND_WITH_INV, ffi::ibv_wr_opcode::IBV_WR_SEND_WITH_INV);
const_assert_eq!(abi::send_flags::FENCE, ffi::ibv_send_flags::IBV_SEND_FENCE.0);
const_assert_eq!(abi::send_flags::SIGNALED, ffi::ibv_send_flags::IBV_SEND_SIGNALED.0);
const_assert_eq!(abi::send_flags::SOLICITED, ffi::ibv_send_flags::IBV_SEND_SOLICITED.0);
const_assert_eq!(abi::send_flags::INLINE, ffi::ibv_send_flags::IBV_SEND_INLINE.0);
const_assert_eq!(abi::wc_opcode::RECV, ffi::ibv_wc_opcode::IBV_WC_RECV);
const_assert_eq!(abi::wc_flags::GRH, ffi::ibv_wc_flags::IBV_WC_GRH.0);
const_assert_eq!(abi::wc_flags::WITH_IMM, ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0);
const_assert_eq!(abi::wc_flags::WITH_INV, ffi::ibv_wc_flags::IBV_WC_WITH_INV.0);
const_assert_eq!(abi::Access::LOCAL_WRITE.bits(), ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0);
const_assert_eq!(
    abi::Access::REMOTE_WRITE.bits(),
    ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
);
const_assert_eq!(abi::Access::REMOTE_READ.bits(), ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0);
const_assert_eq!(
    abi::Access::REMOTE_ATOMIC.bits(),
    ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
);
const_assert_eq!(abi::Access::MW_BIND.bits(), ffi::ibv_access_flags::IBV_ACCESS_MW_BIND.0);
const_assert_eq!(abi::Access::ON_DEMAND.bits(), ffi::ibv_access_flags::IBV_ACCESS_ON_DEMAND.0);

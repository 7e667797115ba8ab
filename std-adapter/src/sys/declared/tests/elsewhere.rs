//! What follows C's headers without being a declaration: the core's structures and numbers, and this
//! crate's.

use nanoverbs_core::WcStatus;
use nanoverbs_core::abi::{self, Access, opcode, send_flags, wc_flags, wc_opcode};

use super::{Field, Part, Structure};
use crate::sys::async_event::kind as event;

/// A structure as if it were declared here; no types are compared.
macro_rules! structures {
    ($($name:literal: $ty:ty { $($field:ident $(. $more:ident)* = $c_field:literal,)* })*) => {[$(
        Structure {
            name: $name,
            part: Part::Whole,
            size: size_of::<$ty>(),
            fields: &[$(Field {
                name: $c_field,
                offset: core::mem::offset_of!($ty, $field $(. $more)*),
                ty: "",
            },)*],
        },
    )*]};
}

pub(super) const STRUCTURES: &[Structure] = &structures! {
    "struct ibv_sge": abi::Sge {
        addr = "addr",
        length = "length",
        lkey = "lkey",
    }
    "struct ibv_send_wr": abi::SendWr {
        wr_id = "wr_id",
        next = "next",
        sg_list = "sg_list",
        num_sge = "num_sge",
        opcode = "opcode",
        send_flags = "send_flags",
        imm_data = "imm_data",
        imm_data = "invalidate_rkey",
        target.rdma.remote_addr = "wr.rdma.remote_addr",
        target.rdma.rkey = "wr.rdma.rkey",
        target.atomic.remote_addr = "wr.atomic.remote_addr",
        target.atomic.compare_add = "wr.atomic.compare_add",
        target.atomic.swap = "wr.atomic.swap",
        target.atomic.rkey = "wr.atomic.rkey",
        target.ud.ah = "wr.ud.ah",
        target.ud.remote_qpn = "wr.ud.remote_qpn",
        target.ud.remote_qkey = "wr.ud.remote_qkey",
        xrc_remote_srqn = "qp_type.xrc.remote_srqn",
        bind_mw.mw = "bind_mw.mw",
        bind_mw.rkey = "bind_mw.rkey",
        bind_mw.mr = "bind_mw.bind_info.mr",
        bind_mw.addr = "bind_mw.bind_info.addr",
        bind_mw.length = "bind_mw.bind_info.length",
        bind_mw.mw_access_flags = "bind_mw.bind_info.mw_access_flags",
    }
    "struct ibv_recv_wr": abi::RecvWr {
        wr_id = "wr_id",
        next = "next",
        sg_list = "sg_list",
        num_sge = "num_sge",
    }
    "struct ibv_wc": abi::Wc {
        wr_id = "wr_id",
        status = "status",
        opcode = "opcode",
        vendor_err = "vendor_err",
        byte_len = "byte_len",
        imm_data = "imm_data",
        imm_data = "invalidated_rkey",
        qp_num = "qp_num",
        src_qp = "src_qp",
        wc_flags = "wc_flags",
        pkey_index = "pkey_index",
        slid = "slid",
        sl = "sl",
        dlid_path_bits = "dlid_path_bits",
    }
};

/// Numbers, and what C calls them.
pub(super) const NUMBERS: &[(&str, i64)] = &[
    ("IBV_WR_RDMA_WRITE", opcode::RDMA_WRITE as i64),
    ("IBV_WR_RDMA_WRITE_WITH_IMM", opcode::RDMA_WRITE_WITH_IMM as i64),
    ("IBV_WR_SEND", opcode::SEND as i64),
    ("IBV_WR_SEND_WITH_IMM", opcode::SEND_WITH_IMM as i64),
    ("IBV_WR_RDMA_READ", opcode::RDMA_READ as i64),
    ("IBV_WR_ATOMIC_CMP_AND_SWP", opcode::ATOMIC_CMP_AND_SWP as i64),
    ("IBV_WR_ATOMIC_FETCH_AND_ADD", opcode::ATOMIC_FETCH_AND_ADD as i64),
    ("IBV_WR_LOCAL_INV", opcode::LOCAL_INV as i64),
    ("IBV_WR_BIND_MW", opcode::BIND_MW as i64),
    ("IBV_WR_SEND_WITH_INV", opcode::SEND_WITH_INV as i64),
    ("IBV_SEND_FENCE", send_flags::FENCE as i64),
    ("IBV_SEND_SIGNALED", send_flags::SIGNALED as i64),
    ("IBV_SEND_SOLICITED", send_flags::SOLICITED as i64),
    ("IBV_SEND_INLINE", send_flags::INLINE as i64),
    ("IBV_WC_SEND", wc_opcode::SEND as i64),
    ("IBV_WC_RDMA_WRITE", wc_opcode::RDMA_WRITE as i64),
    ("IBV_WC_RDMA_READ", wc_opcode::RDMA_READ as i64),
    ("IBV_WC_COMP_SWAP", wc_opcode::COMP_SWAP as i64),
    ("IBV_WC_FETCH_ADD", wc_opcode::FETCH_ADD as i64),
    ("IBV_WC_BIND_MW", wc_opcode::BIND_MW as i64),
    ("IBV_WC_LOCAL_INV", wc_opcode::LOCAL_INV as i64),
    ("IBV_WC_RECV", wc_opcode::RECV as i64),
    ("IBV_WC_RECV_RDMA_WITH_IMM", wc_opcode::RECV_RDMA_WITH_IMM as i64),
    ("IBV_WC_GRH", wc_flags::GRH as i64),
    ("IBV_WC_WITH_IMM", wc_flags::WITH_IMM as i64),
    ("IBV_WC_WITH_INV", wc_flags::WITH_INV as i64),
    ("IBV_ACCESS_LOCAL_WRITE", Access::LOCAL_WRITE.bits() as i64),
    ("IBV_ACCESS_REMOTE_WRITE", Access::REMOTE_WRITE.bits() as i64),
    ("IBV_ACCESS_REMOTE_READ", Access::REMOTE_READ.bits() as i64),
    ("IBV_ACCESS_REMOTE_ATOMIC", Access::REMOTE_ATOMIC.bits() as i64),
    ("IBV_ACCESS_MW_BIND", Access::MW_BIND.bits() as i64),
    ("IBV_ACCESS_ON_DEMAND", Access::ON_DEMAND.bits() as i64),
    ("IBV_WC_SUCCESS", WcStatus::Success.to_raw() as i64),
    ("IBV_WC_LOC_LEN_ERR", WcStatus::LocalLength.to_raw() as i64),
    ("IBV_WC_LOC_QP_OP_ERR", WcStatus::LocalQpOperation.to_raw() as i64),
    ("IBV_WC_LOC_PROT_ERR", WcStatus::LocalProtection.to_raw() as i64),
    ("IBV_WC_WR_FLUSH_ERR", WcStatus::Flushed.to_raw() as i64),
    ("IBV_WC_MW_BIND_ERR", WcStatus::WindowBind.to_raw() as i64),
    ("IBV_WC_BAD_RESP_ERR", WcStatus::BadResponse.to_raw() as i64),
    ("IBV_WC_LOC_ACCESS_ERR", WcStatus::LocalAccess.to_raw() as i64),
    ("IBV_WC_REM_INV_REQ_ERR", WcStatus::RemoteInvalidRequest.to_raw() as i64),
    ("IBV_WC_REM_ACCESS_ERR", WcStatus::RemoteAccess.to_raw() as i64),
    ("IBV_WC_REM_OP_ERR", WcStatus::RemoteOperation.to_raw() as i64),
    ("IBV_WC_RETRY_EXC_ERR", WcStatus::RetryExceeded.to_raw() as i64),
    ("IBV_WC_RNR_RETRY_EXC_ERR", WcStatus::RnrRetryExceeded.to_raw() as i64),
    ("IBV_WC_REM_ABORT_ERR", WcStatus::RemoteAborted.to_raw() as i64),
    ("IBV_WC_FATAL_ERR", WcStatus::Fatal.to_raw() as i64),
    ("IBV_WC_RESP_TIMEOUT_ERR", WcStatus::ResponseTimeout.to_raw() as i64),
    ("IBV_WC_GENERAL_ERR", WcStatus::General.to_raw() as i64),
    ("IBV_EVENT_CQ_ERR", event::CQ_ERR as i64),
    ("IBV_EVENT_QP_FATAL", event::QP_FATAL as i64),
    ("IBV_EVENT_QP_REQ_ERR", event::QP_REQ_ERR as i64),
    ("IBV_EVENT_QP_ACCESS_ERR", event::QP_ACCESS_ERR as i64),
    ("IBV_EVENT_COMM_EST", event::COMM_EST as i64),
    ("IBV_EVENT_SQ_DRAINED", event::SQ_DRAINED as i64),
    ("IBV_EVENT_PATH_MIG", event::PATH_MIG as i64),
    ("IBV_EVENT_PATH_MIG_ERR", event::PATH_MIG_ERR as i64),
    ("IBV_EVENT_DEVICE_FATAL", event::DEVICE_FATAL as i64),
    ("IBV_EVENT_PORT_ACTIVE", event::PORT_ACTIVE as i64),
    ("IBV_EVENT_PORT_ERR", event::PORT_ERR as i64),
    ("IBV_EVENT_LID_CHANGE", event::LID_CHANGE as i64),
    ("IBV_EVENT_PKEY_CHANGE", event::PKEY_CHANGE as i64),
    ("IBV_EVENT_SM_CHANGE", event::SM_CHANGE as i64),
    ("IBV_EVENT_SRQ_ERR", event::SRQ_ERR as i64),
    ("IBV_EVENT_SRQ_LIMIT_REACHED", event::SRQ_LIMIT_REACHED as i64),
    ("IBV_EVENT_QP_LAST_WQE_REACHED", event::QP_LAST_WQE_REACHED as i64),
    ("IBV_EVENT_CLIENT_REREGISTER", event::CLIENT_REREGISTER as i64),
    ("IBV_EVENT_GID_CHANGE", event::GID_CHANGE as i64),
    ("IBV_EVENT_WQ_FATAL", event::WQ_FATAL as i64),
];

//! `infiniband/verbs.h`.

use core::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::Uncalled;

pub(crate) use nanoverbs_core::abi::{RecvWr as ibv_recv_wr, SendWr as ibv_send_wr, Wc as ibv_wc};

type __be16 = u16;
type __be32 = u32;
type __be64 = u64;

/// What has no name in C and is not looked at.
type Unread<const N: usize> = [u32; N];

opaque! {
    _compat_ibv_port_attr
    ibv_ah
    ibv_query_device_ex_input
    verbs_ex_private
}

enumerations! {
    ibv_transport_type: c_int {
        IBV_TRANSPORT_IWARP = 1,
    }

    ibv_wc_status: c_uint {
        IBV_WC_SUCCESS = 0,
    }

    ibv_qp_type: c_uint {
        IBV_QPT_RC = 2,
        IBV_QPT_UD = 4,
    }

    ibv_qp_state: c_uint {
        IBV_QPS_INIT = 1,
        IBV_QPS_RTR = 2,
        IBV_QPS_RTS = 3,
        IBV_QPS_ERR = 6,
    }

    ibv_mw_type: c_uint {
        IBV_MW_TYPE_2 = 2,
    }

    ibv_event_type: c_uint {
        IBV_EVENT_COMM_EST = 4,
    }
}

flags! {
    ibv_qp_attr_mask {
        IBV_QP_STATE = 1 << 0,
        IBV_QP_TIMEOUT = 1 << 9,
        IBV_QP_RETRY_CNT = 1 << 10,
        IBV_QP_RNR_RETRY = 1 << 11,
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
        IBV_QP_MIN_RNR_TIMER = 1 << 15,
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
    }

    ibv_srq_attr_mask {
        IBV_SRQ_LIMIT = 1 << 1,
    }
}

structures! {
    Start struct ibv_device {
        _ops: [Uncalled; 2],
        node_type: c_int,
        transport_type: ibv_transport_type::Type,
    }

    Whole struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    Whole struct ibv_context_ops {
        _compat_query_device: [Uncalled; 7],
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, ibv_mw_type::Type) -> *mut ibv_mw>,
        bind_mw: [Uncalled; 1],
        dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        _compat_create_cq: [Uncalled; 1],
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        _compat_cq_event: [Uncalled; 7],
        post_srq_recv: Option<
            unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
        >,
        _compat_create_qp: [Uncalled; 4],
        post_send: Option<
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
        >,
        post_recv: Option<
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
        >,
        _compat_create_ah: [Uncalled; 5],
    }

    End struct verbs_context {
        alloc_parent_domain: Option<
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
        >,
        dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
        alloc_td: Option<
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td,
        >,
        modify_cq: [Uncalled; 8],
        create_cq_ex: Option<
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
        >,
        priv_ = "priv": *mut verbs_ex_private,
        query_device_ex: Option<
            unsafe extern "C" fn(
                *mut ibv_context,
                *const ibv_query_device_ex_input,
                *mut ibv_device_attr_ex,
                usize,
            ) -> c_int,
        >,
        ibv_destroy_flow: [Uncalled; 10],
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }

    Whole struct ibv_device_attr {
        fw_ver: [c_char; 64],
        node_guid: __be64,
        sys_image_guid: __be64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: c_uint,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_uint,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    Whole struct ibv_odp_caps {
        general_caps: u64,
        per_transport_caps: Unread<3>,
    }

    /// The library fills in as much as it is told that there is room for.
    Start struct ibv_device_attr_ex {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: ibv_odp_caps,
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
    }

    /// The exported `ibv_query_port` fills in no more than this.
    Start struct ibv_port_attr {
        state: c_uint,
        max_mtu: c_uint,
        active_mtu: c_uint,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }

    Start struct ibv_pd {
        context: *mut ibv_context,
    }

    Start struct ibv_td {
        context: *mut ibv_context,
    }

    Whole struct ibv_td_init_attr {
        comp_mask: u32,
    }

    Whole struct ibv_parent_domain_init_attr {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: Option<
            unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void,
        >,
        free: Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64)>,
        pd_context: *mut c_void,
    }

    Start struct ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    Start struct ibv_mw {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
    }

    Start struct ibv_comp_channel {
        context: *mut ibv_context,
        fd: c_int,
    }

    Whole struct ibv_cq {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    Whole struct ibv_cq_init_attr_ex {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }

    Start struct ibv_cq_ex {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: ibv_wc_status::Type,
        wr_id: u64,
        start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
        next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
        end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
        read_opcode: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
        read_vendor_err: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_byte_len: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_imm_data: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> __be32>,
        read_qp_num: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_src_qp: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_wc_flags: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
        read_slid: [Uncalled; 3],
        read_completion_ts: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
    }

    Whole struct ibv_poll_cq_attr {
        comp_mask: u32,
    }

    Start struct ibv_srq {
        context: *mut ibv_context,
    }

    Whole struct ibv_srq_attr {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    Whole struct ibv_srq_init_attr {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }

    Start struct ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
    }

    Whole struct ibv_qp_cap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    Whole struct ibv_qp_init_attr {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: ibv_qp_type::Type,
        sq_sig_all: c_int,
    }

    Whole struct ibv_qp_attr {
        qp_state: ibv_qp_state::Type,
        cur_qp_state: ibv_qp_state::Type,
        path_mtu: c_uint,
        path_mig_state: c_uint,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: c_uint,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }

    Whole struct ibv_ece {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }

    Whole struct ibv_gid_global_t = "typeof(((union ibv_gid *)0)->global)" {
        subnet_prefix: __be64,
        interface_id: __be64,
    }

    Whole union ibv_gid {
        raw: [u8; 16],
        global: ibv_gid_global_t,
    }

    Whole struct ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    Whole struct ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    Whole struct ibv_grh {
        version_tclass_flow: __be32,
        paylen: __be16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: ibv_gid,
        dgid: ibv_gid,
    }

    Whole union ibv_async_event_element_t = "typeof(((struct ibv_async_event *)0)->element)" {
        cq: *mut ibv_cq,
        qp: *mut ibv_qp,
        srq: *mut ibv_srq,
        port_num: c_int,
    }

    Whole struct ibv_async_event {
        element: ibv_async_event_element_t,
        event_type: ibv_event_type::Type,
    }
}

functions! {
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(
        context: *mut ibv_context,
        port_num: u8,
        attr: *mut _compat_ibv_port_attr,
    ) -> c_int;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    fn ibv_ack_async_event(event: *mut ibv_async_event);

    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;

    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);

    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;

    fn ibv_create_qp(pd: *mut ibv_pd, init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int;

    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port_num: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        ah_attr: *mut ibv_ah_attr,
    ) -> c_int;
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
}

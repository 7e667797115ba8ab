//! `rdma/rdma_cma.h`.

use core::ffi::{c_char, c_int, c_void};

use libc::{sockaddr, sockaddr_storage, socklen_t};

use super::verbs::*;

type __be16 = u16;

opaque! {
    ibv_sa_path_rec
}

enumerations! {
    rdma_port_space: c_uint {
        RDMA_PS_TCP = 0x0106,
        RDMA_PS_UDP = 0x0111,
    }

    rdma_cm_event_type: c_uint {
        RDMA_CM_EVENT_ADDR_RESOLVED = 0,
        RDMA_CM_EVENT_ADDR_ERROR = 1,
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
        RDMA_CM_EVENT_ROUTE_ERROR = 3,
        RDMA_CM_EVENT_CONNECT_REQUEST = 4,
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
        RDMA_CM_EVENT_CONNECT_ERROR = 6,
        RDMA_CM_EVENT_UNREACHABLE = 7,
        RDMA_CM_EVENT_REJECTED = 8,
        RDMA_CM_EVENT_ESTABLISHED = 9,
        RDMA_CM_EVENT_DISCONNECTED = 10,
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
        RDMA_CM_EVENT_MULTICAST_JOIN = 12,
        RDMA_CM_EVENT_MULTICAST_ERROR = 13,
        RDMA_CM_EVENT_ADDR_CHANGE = 14,
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    }
}

flags! {
    rdma_cm_join_mc_attr_mask {
        RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0,
        RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1,
    }

    rdma_cm_mc_join_flags {
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1,
    }
}

structures! {
    Whole struct rdma_event_channel {
        fd: c_int,
    }

    Whole struct rdma_ib_addr {
        sgid: ibv_gid,
        dgid: ibv_gid,
        pkey: __be16,
    }

    Whole struct rdma_addr {
        src_addr_union = "src_storage": sockaddr_storage,
        dst_addr_union = "dst_storage": sockaddr_storage,
        addr = "addr.ibaddr": rdma_ib_addr,
    }

    Whole struct rdma_route {
        addr: rdma_addr,
        path_rec: *mut ibv_sa_path_rec,
        num_paths: c_int,
    }

    Whole struct rdma_cm_id {
        verbs: *mut ibv_context,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        qp: *mut ibv_qp,
        route: rdma_route,
        ps: rdma_port_space::Type,
        port_num: u8,
        event: *mut rdma_cm_event,
        send_cq_channel: *mut ibv_comp_channel,
        send_cq: *mut ibv_cq,
        recv_cq_channel: *mut ibv_comp_channel,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        pd: *mut ibv_pd,
        qp_type: ibv_qp_type::Type,
    }

    Whole struct rdma_conn_param {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }

    Whole struct rdma_ud_param {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: ibv_ah_attr,
        qp_num: u32,
        qkey: u32,
    }

    Whole union param_t = "typeof(((struct rdma_cm_event *)0)->param)" {
        conn: rdma_conn_param,
        ud: rdma_ud_param,
    }

    Whole struct rdma_cm_event {
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: rdma_cm_event_type::Type,
        status: c_int,
        param: param_t,
    }

    Whole struct rdma_addrinfo {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: socklen_t,
        ai_dst_len: socklen_t,
        ai_src_addr: *mut sockaddr,
        ai_dst_addr: *mut sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut rdma_addrinfo,
    }

    Whole struct rdma_cm_join_mc_attr_ex {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut sockaddr,
    }
}

functions! {
    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    fn rdma_get_cm_event(
        channel: *mut rdma_event_channel,
        event: *mut *mut rdma_cm_event,
    ) -> c_int;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;

    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: rdma_port_space::Type,
    ) -> c_int;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    fn rdma_set_option(
        id: *mut rdma_cm_id,
        level: c_int,
        optname: c_int,
        optval: *mut c_void,
        optlen: usize,
    ) -> c_int;

    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        src_addr: *mut sockaddr,
        dst_addr: *mut sockaddr,
        timeout_ms: c_int,
    ) -> c_int;
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    fn rdma_getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
        res: *mut *mut rdma_addrinfo,
    ) -> c_int;
    fn rdma_freeaddrinfo(res: *mut rdma_addrinfo);
    fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context;
    fn rdma_free_devices(list: *mut *mut ibv_context);

    fn rdma_create_qp(
        id: *mut rdma_cm_id,
        pd: *mut ibv_pd,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int;
    fn rdma_destroy_qp(id: *mut rdma_cm_id);
    fn rdma_init_qp_attr(
        id: *mut rdma_cm_id,
        qp_attr: *mut ibv_qp_attr,
        qp_attr_mask: *mut c_int,
    ) -> c_int;

    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int;
    fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int;
    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type::Type) -> c_int;
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;

    fn rdma_join_multicast(
        id: *mut rdma_cm_id,
        addr: *mut sockaddr,
        context: *mut c_void,
    ) -> c_int;
    fn rdma_join_multicast_ex(
        id: *mut rdma_cm_id,
        attr: *mut rdma_cm_join_mc_attr_ex,
        context: *mut c_void,
    ) -> c_int;
    fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
}

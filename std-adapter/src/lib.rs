//! RDMA for Rust.

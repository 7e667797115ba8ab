//! Preallocated RDMA work requests and completion bookkeeping.
#![no_std]

//! What may change threads, and what may not be shared.

use nanoverbs_core::{
    Block, Completion, Completions, Consumer, Counters, Datagram, Doorbell, Group, Member, Nap,
    Part, Pool, Producer, RecvQueue, RecvSeat, RecvStaging, SendLink, SendQueue, SendSeat,
    SendStaging, Stop, op,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

struct Port;
type Sends = SendQueue<'static, Port, u64, 4>;
type Recvs = RecvQueue<'static, Port, u64, 4>;

assert_impl_all!(Sends: Send);
assert_not_impl_any!(Sends: Sync, Clone);
assert_impl_all!(Recvs: Send);
assert_not_impl_any!(Recvs: Sync, Clone);
assert_not_impl_any!(SendQueue<'static, Port, *const u8, 4>: Send);
assert_impl_all!(SendStaging<4, 1>: Send);
assert_impl_all!(RecvStaging<4, 1>: Send);
assert_impl_all!(SendLink<'static, 4, 1>: Send);
assert_impl_all!(Completions<Port>: Send);
assert_not_impl_any!(Completion: Clone, Copy, Default);
assert_impl_all!(Block: Send, Sync);
assert_not_impl_any!(Block: Clone, Copy);
assert_impl_all!(Part: Send, Sync);
assert_not_impl_any!(Part: Clone, Copy);
assert_impl_all!(Datagram: Send, Sync);
assert_not_impl_any!(Datagram: Clone, Copy);
assert_impl_all!(op::Peer: Send, Sync, Copy);
assert_impl_all!(Pool: Send);
assert_not_impl_any!(Pool: Sync, Clone);
assert_impl_all!(Producer<'static, u64, 4>: Send);
assert_impl_all!(Consumer<'static, u64, 4>: Send);
assert_not_impl_any!(Producer<'static, *const u8, 4>: Send);
assert_not_impl_any!(Producer<'static, u64, 4>: Clone);
assert_not_impl_any!(Consumer<'static, u64, 4>: Clone);
assert_impl_all!(Group<4>: Send);
assert_impl_all!(Member: Send);
assert_not_impl_any!(Member: Clone, Default);
assert_impl_all!(SendSeat: Send);
assert_not_impl_any!(SendSeat: Clone, Default);
assert_impl_all!(RecvSeat: Send);
assert_not_impl_any!(RecvSeat: Clone, Default);
assert_impl_all!(Doorbell: Sync);
assert_not_impl_any!(Nap<'static>: Clone);
assert_impl_all!(Stop: Sync);
assert_impl_all!(Counters: Sync);

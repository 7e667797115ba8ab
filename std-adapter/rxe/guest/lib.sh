# Functions that every shell case may use; each case is run by `sh -eu` after this file.
# shellcheck shell=sh

# busybox prefers its own, which know neither rxe nor netem.
ip() { /usr/sbin/ip "$@"; }
tc() { /usr/sbin/tc "$@"; }

fail() {
    echo "$*"
    exit 1
}

# Waits until a command prints exactly this: wait_until SECONDS COMMAND EXPECTED
wait_until() {
    tries=$(($1 * 20))
    while [ "$(eval "$2")" != "$3" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        usleep 50000
    done
}

# Waits until somebody listens on a port of the RDMA connection manager: wait_listen PORT
wait_listen() {
    wait_until 10 "rdma resource show cm_id | grep -c 'state LISTEN.*:$1 '" 1 ||
        fail "nobody listens on port $1: $(rdma resource show cm_id)"
    # The kernel says so shortly before it is true.
    usleep 50000
}

# Runs a command that must fail with this code: ends_with CODE COMMAND…
ends_with() {
    expected=$1
    shift
    code=0
    "$@" || code=$?
    [ "$code" = "$expected" ] || fail "$*: exit code $code, not $expected"
}

# Runs a command without privileges, with this much lockable memory in KiB: as_user KIB COMMAND
as_user() {
    su user -s /bin/sh -c "ulimit -l $1; $2"
}

# A wire that loses packets.
#
# Two rxe devices on the two ends of a veth pair: rxe_v0 on v0 at 10.1.0.1 and rxe_v1 on v1 at 10.1.0.2.
# rxe does not work in network namespaces and netem does not see the packets of a dummy device, so both
# ends are in the first namespace, and rules make the packets cross the wire. A server binds 10.1.0.2; v0
# carries its requests, v1 the acknowledgements and READ responses. IPv4 only.
veth_pair() {
    modprobe -a veth sch_netem
    ip link add v0 address 02:00:00:00:00:01 type veth peer name v1 address 02:00:00:00:00:02
    for i in all default v0 v1; do
        echo 1 >/proc/sys/net/ipv4/conf/$i/accept_local
        echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter
    done
    ip addr add 10.1.0.1/24 dev v0
    ip addr add 10.1.0.2/24 dev v1
    ip link set v0 up
    ip link set v1 up
    # Without these the first connection takes three seconds.
    ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent
    ip neigh replace 10.1.0.1 lladdr 02:00:00:00:00:01 dev v1 nud permanent
    ip rule add pref 100 from all lookup local
    ip rule del pref 0
    ip rule add pref 10 iif lo to 10.1.0.2 lookup 101
    ip route add 10.1.0.2/32 dev v0 src 10.1.0.1 table 101
    ip rule add pref 11 iif lo to 10.1.0.1 lookup 102
    ip route add 10.1.0.1/32 dev v1 src 10.1.0.2 table 102
    rdma link add rxe_v0 type rxe netdev v0
    rdma link add rxe_v1 type rxe netdev v1
}

# What the wire does to packets that leave an end, as netem says it: wire v0 loss 5%
# Also: delay 5ms 3ms | delay 2ms reorder 25% 50% | duplicate 20% | corrupt 10% | loss 100%
wire() {
    end=$1
    shift
    tc qdisc replace dev "$end" root netem "$@"
}

# Makes an end whole again: mend v0
mend() {
    tc qdisc del dev "$1" root 2>/dev/null || :
    tc filter del dev "$1" ingress 2>/dev/null || :
}

# Drops every Nth RDMA packet that arrives at an end, the same ones in each run: drop_every v1 4
drop_every() {
    modprobe -a sch_ingress cls_u32 act_gact
    tc qdisc replace dev "$1" clsact
    # Only here or in netem: rxe sees a drop by a filter on the way out and behaves as on no real wire.
    tc filter add dev "$1" ingress protocol ip prio 1 u32 match ip protocol 17 0xff \
        match u16 4791 0xffff at 22 action gact pass random determ drop "$2"
}

# The packets that netem or drop_every has taken at an end: a case that injects loss asserts that it is not 0.
lost() {
    { tc -s qdisc show dev "$1" root; tc -s filter show dev "$1" ingress; } |
        awk '/dropped/ { sub(/.*dropped /, ""); sum += $1 } END { print sum + 0 }'
}

# Undone after each case by init.
remove_veth_pair() {
    for device in rxe_v0 rxe_v1; do timeout -s KILL 10 rdma link delete $device; done
    ip link del v0
    ip rule add pref 0 from all lookup local
    for pref in 10 11 100; do ip rule del pref $pref; done
    for table in 101 102; do ip route flush table $table; done
    for i in all default; do echo 0 >/proc/sys/net/ipv4/conf/$i/accept_local; done
    :
}

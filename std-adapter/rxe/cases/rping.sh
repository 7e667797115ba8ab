# limit: 300
# rping, ours and rdma-core's: over both families, 1,000 pings of each size each way, every byte checked by
# both clients and by our server; then servers that stay for many clients.
#
# Two games at a time, because each waits more than it works. Large frames, as in pingpong_64k.
theirs=/usr/sbin/rping
trap 'ip link set d0 mtu 1500' EXIT
ip link set d0 mtu 9000

our_server() { # ADDR SIZE
    rping -s -a "$1" -V >served &
    server=$!
    wait_listen 7174
    $theirs -c -a "$1" -S "$2" -C 1000 -V
    wait $server
    grep '^served .* 1000 pings of .*, every byte' served
}
their_server() { # ADDR SIZE
    $theirs -s -a "$1" -p 7175 -S "$2" &
    server=$!
    wait_listen 7175
    rping -c -a "$1" -p 7175 -S "$2" -C 1000 -V
    wait $server
}
for addr in "$NANOVERBS_RXE_ADDR" "$NANOVERBS_RXE_ADDR6"; do
    # Theirs takes one byte less than 64 KiB.
    for size in 64 65535; do
        our_server "$addr" $size &
        ours=$!
        their_server "$addr" $size
        wait $ours
    done
    # Ours takes it whole.
    rping -s -a "$addr" -V &
    wait_listen 7174
    rping -c -a "$addr" -S 65536 -C 100 -V
    wait $!
done

# A server that stays: two clients at a time, and one after them; each end ours and theirs.
rping -s -P -a "$NANOVERBS_RXE_ADDR" -V 2>served &
$theirs -s -P -a "$NANOVERBS_RXE_ADDR6" -p 7175 -S 4096 &
wait_listen 7174
wait_listen 7175
for turn in 1 2; do
    echo "turn $turn"
    $theirs -c -a "$NANOVERBS_RXE_ADDR" -S 4096 -C 100 -V &
    one=$!
    rping -c -a "$NANOVERBS_RXE_ADDR" -S 100 -C 100 -V &
    two=$!
    rping -c -a "$NANOVERBS_RXE_ADDR6" -p 7175 -S 4096 -C 100 -V &
    three=$!
    $theirs -c -a "$NANOVERBS_RXE_ADDR6" -p 7175 -S 100 -C 100 -V
    wait $one
    wait $two
    wait $three
done
wait_until 5 "grep -c '100 pings of 10.0.0.1:.*, every byte' served" 4 || fail "$(cat served)"

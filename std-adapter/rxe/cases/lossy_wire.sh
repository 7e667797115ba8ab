# Packets that are really lost arrive all the same: rping compares every byte. Once each end is ours and the
# other one rdma-core's.
theirs=/usr/sbin/rping
veth_pair
drop_every v1 30
wire v0 delay 1ms
for turn in "rping $theirs" "$theirs rping"; do
    ${turn% *} -s -a 10.1.0.2 -V &
    wait_listen 7174
    ${turn#* } -c -I 10.1.0.1 -a 10.1.0.2 -C 10 -V
    wait $!
done
[ "$(lost v1)" -gt 0 ] || fail "no packet was lost"

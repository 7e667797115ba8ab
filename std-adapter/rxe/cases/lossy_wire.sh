# Packets that are really lost arrive all the same: rping compares every byte.
veth_pair
rping -s -a 10.1.0.2 -C 20 -V &
wait_listen 7174
drop_every v1 30
wire v0 delay 1ms
rping -c -I 10.1.0.1 -a 10.1.0.2 -C 20 -V
wait $!
[ "$(lost v1)" -gt 0 ] || fail "no packet was lost"

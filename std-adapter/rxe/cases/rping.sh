# rdma-core's own ping-pong over both families: the connection manager works in the guest.
for addr in "$NANOVERBS_RXE_ADDR" "$NANOVERBS_RXE_ADDR6"; do
    rping -s -a "$addr" -C 10 &
    wait_listen 7174
    rping -c -a "$addr" -C 10 -v
    wait $!
done

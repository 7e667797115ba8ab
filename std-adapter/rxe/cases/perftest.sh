# perftest through the connection manager: a peer with other habits than ours.
ib_send_lat -R -s 64 -n 1000 &
wait_listen 18515
ib_send_lat -R -s 64 -n 1000 "$NANOVERBS_RXE_ADDR"
wait $!

# Datagrams to and fro, and to a multicast group, of which the server is a member.
group=239.1.2.3:7481
ud_pong serve "$NANOVERBS_RXE_ADDR:7481" $group >served &
wait_until 10 'grep -c serving served' 1
ud_pong play "$NANOVERBS_RXE_ADDR:0" "$NANOVERBS_RXE_ADDR:7481" $group
wait $!
grep '1001 datagrams came and went back' served

# 100 connections with rdma-core's ucmatose, each way, over both families: messages both ways on all of
# them, then the server ends them.
for addr in "$NANOVERBS_RXE_ADDR" "$NANOVERBS_RXE_ADDR6"; do
    connections --listen "$addr" >served &
    wait_listen 7471
    ucmatose -s "$addr" -c 100 | tee said
    grep '^return status 0' said
    wait $!
    grep '100 connections' served

    ucmatose -b "$addr" -c 100 -C 20 -S 1000 >said &
    wait_listen 7471
    connections --connect "$addr" -C 20 -S 1000
    wait $!
    grep '^return status 0' said
done

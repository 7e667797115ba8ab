# hello with rdma-core's rdma_client and rdma_server, each way, over both families.
for addr in "$NANOVERBS_RXE_ADDR" "$NANOVERBS_RXE_ADDR6"; do
    hello --listen "$addr" >heard &
    wait_listen 7471
    rdma_client -s "$addr"
    wait $!
    grep '^heard 16 bytes' heard

    rdma_server -s "$addr" &
    wait_listen 7471
    hello --connect "$addr" | grep '^heard 16 bytes'
    wait $!
done

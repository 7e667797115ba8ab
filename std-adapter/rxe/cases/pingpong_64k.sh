# limit: 600
# 10,000 round trips of 64 KiB, every byte checked at both ends. With jumbo frames, as most RDMA networks
# have them, a message is 16 packets; with the guest's usual ones it is 64.
trap 'ip link set d0 mtu 1500' EXIT
ip link set d0 mtu 9000
pingpong --listen "$NANOVERBS_RXE_ADDR" -e --cpu 0 &
wait_listen 18515
pingpong --connect "$NANOVERBS_RXE_ADDR" -e --cpu 0 -s 64K -n 10000 --warmup 10
wait $!

# limit: 300
# 10,000 round trips of 64 bytes through librdmacm and rxe, every byte checked at both ends; then several
# under way at a time, inline, over IPv6, and polling without pause. WRITEs and READs likewise, and SENDs one way.
#
# Both ends share a processor and sleep while they wait: the device's work is done by the guest's two
# processors as well, and two that poll without pause leave it little.
play() { # ADDR OPTIONS…
    addr=$1
    shift
    pingpong --listen "$addr" -e --cpu 0 &
    wait_listen 18515
    pingpong --connect "$addr" "$@"
    wait $!
}
play "$NANOVERBS_RXE_ADDR" -e --cpu 0 -s 64 -n 10000 --json out.json
grep -q '"device": "rxe0"' out.json
play "$NANOVERBS_RXE_ADDR" -e --cpu 0 -s 4096 -n 1000 -t 16
play "$NANOVERBS_RXE_ADDR" -e --cpu 0 -s 64 -n 1000 -I 64
play "$NANOVERBS_RXE_ADDR6" -e --cpu 0 -s 100 -n 1000
play "$NANOVERBS_RXE_ADDR" --cpu 1 -s 64 -n 100 --warmup 0
play "$NANOVERBS_RXE_ADDR" -e --cpu 0 --verb write -s 100 -n 1000 -t 16
play "$NANOVERBS_RXE_ADDR" -e --cpu 0 --verb write -s 64 -n 500 -I 64
play "$NANOVERBS_RXE_ADDR" --cpu 1 --verb write --in-order -s 2 -n 100 --warmup 0
play "$NANOVERBS_RXE_ADDR" -e --cpu 0 --verb read -s 100 -n 1000 -t 16
play "$NANOVERBS_RXE_ADDR6" -e --cpu 0 --verb read -s 64K -n 20 --warmup 0
play "$NANOVERBS_RXE_ADDR" -e --cpu 0 --rate -s 64 -n 5000 -t 64

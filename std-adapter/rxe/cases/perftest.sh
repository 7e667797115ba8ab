# perftest through the connection manager, beside our pingpong, as a measuring stick: the median of half a
# round trip of 64 bytes (of a whole one for ib_read_lat). All poll without pause. The figures are those
# of an emulated machine, good as ratios of one run at most. Debian's version has no way to an address of
# IPv6.
measure() { # PROGRAM
    "$1" -R -s 64 -n 1000 >/dev/null &
    wait_listen 18515
    "$1" -R -s 64 -n 1000 "$NANOVERBS_RXE_ADDR" >said
    wait $!
    awk -v program="$1" '$1 == 64 { printf "%-13s %8.1f µs\n", program, $5; found = 1 } END { exit !found }' said
}
for program in ib_send_lat ib_write_lat ib_read_lat; do measure $program; done

pingpong --listen "$NANOVERBS_RXE_ADDR" --cpu 0 >/dev/null &
wait_listen 18515
pingpong --connect "$NANOVERBS_RXE_ADDR" --cpu 1 -s 64 -n 1000 --warmup 0 --json said >/dev/null
wait $!
sed -n 's/^.*"p50": *\([0-9]*\).*/\1/p' said | awk '{ printf "%-13s %8.1f µs\n", "pingpong", $1 / 2000; found = 1 } END { exit !found }'

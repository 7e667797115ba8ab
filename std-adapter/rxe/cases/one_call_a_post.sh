# limit: 300
# Exactly one system call a post: 200 more round trips are 200 more calls to the device, by which rxe learns
# of a send. Receives are posted and completions polled in shared memory.
calls_of() { # ROUNDS
    pingpong --listen "$NANOVERBS_RXE_ADDR" -s 64 >/dev/null &
    wait_listen 18515
    strace -f -c -P /dev/infiniband/uverbs0 -o calls \
        pingpong --connect "$NANOVERBS_RXE_ADDR" -s 64 -n "$1" --warmup 0 >/dev/null
    wait $!
    awk '$NF == "total" { print $4 }' calls
}
few=$(calls_of 50)
cat calls
many=$(calls_of 250)
cat calls
[ $((many - few)) -eq 200 ] || fail "200 more posts are $((many - few)) more system calls"

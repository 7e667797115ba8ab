# One READ of a peer's memory into several buffers through librdmacm and rxe, every byte checked; and a
# READ before the connection is refused, where C code would hang.
for addr in "$NANOVERBS_RXE_ADDR" "$NANOVERBS_RXE_ADDR6"; do
    for shape in '' '-p 8 -s 65536' '-p 3 -s 1001' '-p 1 -s 1'; do
        # shellcheck disable=SC2086
        readv --listen "$addr" $shape &
        wait_listen 18515
        # shellcheck disable=SC2086
        readv --connect "$addr" $shape >out
        cat out
        grep -q 'before the connection is refused: the queue pair is not connected yet' out
        wait $!
    done
done

# The ends were told different things, nobody is there, the peer dies.
readv --listen "$NANOVERBS_RXE_ADDR" -p 2 &
server=$!
wait_listen 18515
ends_with 1 readv --connect "$NANOVERBS_RXE_ADDR" 2>said
grep 'give both ends the same' said
ends_with 1 wait $server
ends_with 1 readv --connect "$NANOVERBS_RXE_ADDR" 2>said
grep 'nobody listens' said

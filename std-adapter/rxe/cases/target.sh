# One pinned thread, one completion queue, any number of clients that come and go: over both families. Every
# byte is checked.
# limit: 240
for addr in "$NANOVERBS_RXE_ADDR" "$NANOVERBS_RXE_ADDR6"; do
    target --listen "$addr" -s 1024 --visits 40 --core 1 >served &
    server=$!
    wait_listen 18515
    target --connect "$addr" -s 1024 -c 32 -r 10 &
    clients=$!
    target --connect "$addr" -s 1024 -c 8 -r 20 >out
    cat out
    grep '^clients     8, each 20 blocks of 1024 bytes stored and loaded again, 4 at a time$' out
    wait $clients
    wait $server
    cat served
    grep '^target      40 clients, 480 loads and 480 stores, one thread$' served
done

# Some are killed in the middle of it, one asks for what it did not agree on: the others are served.
target --listen "$NANOVERBS_RXE_ADDR" -s 1024 --visits 13 >served 2>said &
server=$!
wait_listen 18515
target --connect "$NANOVERBS_RXE_ADDR" -s 1024 -c 4 -r 1000000 &
killed=$!
# Both ends of four connections.
wait_until 20 "rdma resource show cm_id | grep -c 'state CONNECT.*:18515 '" 8
target --connect "$NANOVERBS_RXE_ADDR" -s 1024 -c 8 -r 10 &
clients=$!
kill -KILL $killed
ends_with 1 target --connect "$NANOVERBS_RXE_ADDR" -s 64 -c 1 -r 10 2>hint
cat hint
grep 'give both ends the same --size' hint
wait $clients
wait $server
cat served said
grep '^target      13 clients' served
grep 'are not inside a region of 64 bytes' said

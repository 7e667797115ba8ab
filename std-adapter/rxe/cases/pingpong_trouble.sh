# limit: 300
# What goes wrong is said in one sentence, with exit code 1, and in time.
addr=$NANOVERBS_RXE_ADDR

# Runs pingpong, which must fail with these words: says WORDS OPTIONS…
says() {
    words=$1
    shift
    ends_with 1 pingpong "$@" 2>said
    cat said
    grep -q "^pingpong: .*$words" said || fail "not said: $words"
    [ "$(wc -l <said)" -le 2 ] || fail "more than a sentence"
}

says "nobody listens on $addr:18515" --connect "$addr"
says 'no RDMA device has the address 127.0.0.1' --listen 127.0.0.1
says 'no RDMA device has the address 127.0.0.1' --connect 127.0.0.1
says 'this machine does not have the address 10.9.9.9' --listen 10.9.9.9
says 'the network does not lead to 192.0.2.1' --connect 192.0.2.1
says 'no peer asked for a connection' --listen "$addr" --timeout 1
says 'core 99 cannot be had' --listen "$addr" --cpu 99

# The port is in use.
pingpong --listen "$addr" -n 100 &
server=$!
wait_listen 18515
says "$addr:18515 is in use" --listen "$addr"

# The two ends were told different things: both say so.
says 'the server .* refused: --iters is 100 at the server and 7 at the client' --connect "$addr" -n 7
ends_with 1 wait $server

pingpong --listen "$addr" --rate &
server=$!
wait_listen 18515
says 'the server .* refused: the server was told to play SENDs one way' --connect "$addr" --verb read
ends_with 1 wait $server

# Both ends are connected, and have had a second to play.
playing() {
    wait_until 20 "rdma resource show qp | grep -c 'type RC.*state RTS'" 2 || fail "the two do not connect"
    sleep 1
}
long="-n 1000000000 -e --cpu 0"

# The server is killed in the middle.
pingpong --listen "$addr" -e --cpu 0 &
server=$!
wait_listen 18515
(playing; kill -KILL $server) &
says 'the peer has ended the connection, or is gone, after [0-9]* of' --connect "$addr" $long

# The client is.
pingpong --listen "$addr" -e --cpu 0 2>said &
server=$!
wait_listen 18515
pingpong --connect "$addr" $long &
client=$!
playing
kill -KILL $client
ends_with 1 wait $server
cat said
grep -q 'the peer has ended the connection, or is gone, after [0-9]* of' said

# The server is stopped, and says nothing any more.
pingpong --listen "$addr" -e --cpu 0 &
server=$!
wait_listen 18515
(playing; kill -STOP $server) &
says 'the peer has not answered for 5 seconds' --connect "$addr" $long --timeout 5
kill -KILL $server

# Too little memory may be locked.
pingpong --listen "$addr" &
wait_listen 18515
ends_with 1 as_user 64 "/bed/bin/pingpong --connect $addr -s 1M" 2>said
cat said
grep -q 'ulimit -l' said

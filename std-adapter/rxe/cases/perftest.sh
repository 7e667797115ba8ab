# limit: 400
# perftest through the connection manager, beside our pingpong, as a measuring stick.
#
# Latency is the median of half a round trip of SENDs and of WRITEs, and of a whole one of READs, as perftest
# prints it. A WRITE has arrived when the last byte of memory shows it, here as there: rxe writes a message from
# front to back. Rate is that of SENDs one way, 64 under way. Servers sit on the first processor and clients on
# the second, all poll without pause, nothing travels inline (perftest knows no inline on rxe), and nobody warms up.
# perftest times from one post to the next, pingpong from the post until the answer is there, and looks at
# every byte before it posts again. Debian's perftest has no way to an address of IPv6.
#
# In `make rxe` all of them play once, at one size. With NANOVERBS_RXE_ROUNDS, which `make rxe-bench` sets, they
# take turns for so many rounds at four sizes; a ratio is the median of those of the rounds, because what else the
# machine does slows down neighbours alike. Whether a bar holds is printed, and fails nothing.
addr=$NANOVERBS_RXE_ADDR
rounds=${NANOVERBS_RXE_ROUNDS:-1}
if [ "$rounds" = 1 ]; then sizes=64; else sizes='2 64 4096 65536'; fi

# Fewer of what takes long: iters SIZE
iters() { if [ "$1" = 65536 ]; then echo 100; else echo 300; fi; }

# One run of perftest, to the file `said`: theirs PROGRAM OPTIONS…
theirs() {
    taskset 1 "$@" >server 2>&1 &
    wait_listen 18515
    ended=0
    taskset 2 timeout 20 "$@" "$addr" >said 2>complaint || ended=$?
    # Once in a while its server waits for a farewell that it has had already.
    kill $! 2>/dev/null || :
    wait $! 2>/dev/null || :
    wait_until 10 "rdma resource show cm_id | grep -c 'state LISTEN.*:18515 '" 0
    [ $ended = 0 ] || { cat complaint >&2; return $ended; }
}

# The same of pingpong: ours OPTIONS…
ours() {
    pingpong --listen "$addr" --cpu 0 >/dev/null 2>&1 &
    wait_listen 18515
    pingpong --connect "$addr" --cpu 1 --warmup 0 --json said "$@" >/dev/null
    wait $!
}

# A number in what perftest said of messages of this size: column SIZE NUMBER
column() {
    awk -v size="$1" -v at="$2" '$1 == size { print $at; found = 1 } END { exit !found }' said || cat said >&2
}
# A number in what pingpong said: value NAME
value() {
    sed -n "s/^ *\"$1\": *\([0-9.]*\),*$/\1/p" said | grep .
}

# Half a round trip, or a whole one: latency VERB SIZE, in turn theirs and ours
their_latency() {
    theirs "ib_$1_lat" -R -s "$2" -n "$(iters "$2")"
    column "$2" 5
}
our_latency() {
    order=
    [ "$1" = write ] && order=--in-order
    # shellcheck disable=SC2086
    ours --verb "$1" $order -s "$2" -n "$(iters "$2")"
    parts=2
    [ "$1" = read ] && parts=1
    value p50 | awk -v parts=$parts '{ print $1 / 1000 / parts }'
}
# Messages a second: rate SIZE
many=$((rounds == 1 ? 2000 : 20000))
their_rate() {
    theirs ib_send_bw -R -s "$2" -n $many -t 64
    column "$2" 5 | awk '{ print $1 * 1000000 }'
}
our_rate() {
    ours --rate -s "$2" -n $many -t 64
    value messages_per_second
}

# What perftest measures, in $their: measure KIND VERB SIZE
#
# It is a measuring stick and not what is tested here, so it may try again: it fails to connect now and then, and
# prints "inf" where it cannot tell how fast the processor is.
measure() {
    for _ in 1 2 3; do
        their=$("their_$1" "$2" "$3") || their=failed
        case $their in '' | *[!0-9.]*) ;; *) return ;; esac
    done
}

# Both of a kind, who was second is first the next time: both KIND VERB SIZE ROUND
both() {
    if [ $(($4 % 2)) -eq 0 ]; then
        measure "$1" "$2" "$3"
        our=$("our_$1" "$2" "$3")
    else
        our=$("our_$1" "$2" "$3")
        measure "$1" "$2" "$3"
    fi
    # Of many rounds one without a figure counts for nothing.
    case $their in
    '' | *[!0-9.]*) [ "$rounds" -gt 1 ] || fail "ib_$2: $their" ;;
    *) echo "$1 $2 $3 $their $our" | tee -a rows ;;
    esac
}

: >rows
round=0
while [ "$round" -lt "$rounds" ]; do
    for size in $sizes; do
        for verb in send write read; do both latency $verb "$size" $round; done
    done
    both rate send 64 $round
    round=$((round + 1))
done

# Columns: what, its unit, bytes, theirs and ours in the middle, the ratio in the middle, the limit, the verdict.
awk '
    function middle(list, n,    i, j, least, sorted) {
        split(list, sorted, " ")
        for (i = 1; i <= n; i++)
            for (j = i; j > 1 && sorted[j] + 0 < sorted[j - 1] + 0; j--) {
                least = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = least
            }
        return n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
    }
    {
        key = $1 " " $2 " " $3
        if (!(key in count)) keys[++all] = key
        count[key]++
        their[key] = their[key] " " $4; our[key] = our[key] " " $5; ratio[key] = ratio[key] " " $5 / $4
    }
    END {
        printf "%-14s %6s %12s %12s %6s\n", "beside", "bytes", "theirs", "ours", "ratio"
        for (i = 1; i <= all; i++) {
            key = keys[i]; n = count[key]
            split(key, part, " ")
            r = middle(ratio[key], n)
            if (part[1] == "rate") { name = "ib_send_bw -R"; verdict = "messages a second" }
            else { name = "ib_" part[2] "_lat -R"; verdict = r <= 1.05 ? "µs, holds" : "µs, does not" }
            printf "%-14s %6d %12.2f %12.2f %6.2f  %s\n", name, part[3], middle(their[key], n), middle(our[key], n), r, verdict
        }
        exit all == 0
    }' rows

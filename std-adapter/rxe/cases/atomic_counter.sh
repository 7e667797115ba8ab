# limit: 120
# Four clients in two processes add to one number; the server sees that no count was lost.
atomic_counter --listen "$NANOVERBS_RXE_ADDR" --clients 4 --rounds 500 --step 3 >server.txt &
wait_listen 18515
atomic_counter --connect "$NANOVERBS_RXE_ADDR" --clients 2 --rounds 500 --step 3 &
atomic_counter --connect "$NANOVERBS_RXE_ADDR" --clients 2 --rounds 500 --step 3
wait
cat server.txt
grep -q '^counter  *6000, as it should' server.txt

# One thread, many connections, one epoll: over both families.
event_loop "$NANOVERBS_RXE_ADDR:7480" 16 50 | tee out
grep '^16 connections, 800 answers, .* one thread$' out
event_loop "[$NANOVERBS_RXE_ADDR6]:7480" 2 10

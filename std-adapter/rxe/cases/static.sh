# pingpong as one file, alone in its root with what the kernel mounts there: no loader, no library, no list
# of drivers. Its binding is the project's own declarations.
mkdir -p root/dev root/sys
cp /bed/bin/pingpong-static root/pingpong
# In a mount namespace, which takes the mounts with it when it ends.
# shellcheck disable=SC2016
unshare -m sh -eu -c '
    . /bed/lib.sh
    mount -t devtmpfs devtmpfs root/dev
    mount -t sysfs sysfs root/sys
    [ "$(find root -xdev -type f)" = root/pingpong ] || fail "there is more in it: $(find root -xdev -type f)"
    chroot root /pingpong --listen "$NANOVERBS_RXE_ADDR" -e --cpu 0 &
    wait_listen 18515
    chroot root /pingpong --connect "$NANOVERBS_RXE_ADDR" -e --cpu 0 -s 64 -n 1000 >out
    cat out
    wait $!
    grep -q rxe0 out
'

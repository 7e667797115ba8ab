# A user without privileges opens the device; the limit on locked memory is his own.
as_user 64 'id -u; ulimit -l; ibv_devinfo -d rxe0' >out
cat out
grep -qx 1000 out
grep -qx 64 out
grep -q PORT_ACTIVE out

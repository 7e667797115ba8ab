# The doctor sees the device, and that it hangs on no bus.
doctor --device rxe0 | tee /tmp/said
grep -q 'device-node.*rxe0 is on no bus' /tmp/said
ends_with 1 doctor --device rxe0 --cpu 0 --strict
doctor --device mlx5_7 --quiet | grep -q 'has no mlx5_7; it has: rxe0'

# rdma-core sees the device.
ibv_devices | grep -w rxe0
ibv_devinfo -d rxe0 | grep PORT_ACTIVE

"""delaying_relay.py DEVICE SECONDS LOST SEED: a TUN device that sends every packet back SECONDS later, except one in
LOST, which it drops. Routes decide what goes to it. It prints "ready" when the device is there. When its standard input
ends, it prints how many packets it brought and lost, and ends. For kernels without netem; used by network.py."""

import collections
import fcntl
import os
import random
import select
import struct
import sys
import time

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def _open(device):
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


def _packets(tun):
    """The packets that wait there now."""
    while True:
        try:
            yield os.read(tun, 65536)
        except BlockingIOError:
            return


def main(device, seconds, lost, seed):
    tun, chance = _open(device), random.Random(seed)
    print("ready", flush=True)
    on_their_way, brought, dropped = collections.deque(), 0, 0
    while True:
        timeout = max(0.0, on_their_way[0][0] - time.monotonic()) if on_their_way else None
        readable, _, _ = select.select([tun, sys.stdin], [], [], timeout)
        if sys.stdin in readable:
            print(brought, dropped)
            return
        for packet in _packets(tun):
            if chance.randrange(lost) == 0:
                dropped += 1
            else:
                on_their_way.append((time.monotonic() + seconds, packet))
        while on_their_way and on_their_way[0][0] <= time.monotonic():
            try:
                os.write(tun, on_their_way.popleft()[1])
                brought += 1
            except OSError:  # the device is not up, or the kernel does not take the packet
                dropped += 1


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

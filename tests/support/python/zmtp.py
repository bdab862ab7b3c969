"""A DEALER of ZeroMQ (ZMTP 3.0, without keys) of a few lines: what talks to a publisher by the bytes of FORMAT.md alone."""

import socket
import struct


class Dealer:
    def __init__(self, endpoint, seconds=30):
        host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), seconds)
        self._socket.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        greeting = self._exactly(64)
        assert greeting[0] == 0xFF and greeting[9] == 0x7F and greeting[12:16] == b"NULL"
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        self._socket.sendall(bytes([0x04, len(ready)]) + ready)
        assert self._frame()[0] == 0x04

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def send(self, message):
        self._socket.sendall(b"\x02" + struct.pack(">Q", len(message)) + message)

    def receive(self):
        flags, body = self._frame()
        assert flags & 0x05 == 0, "a command, or one of several parts"
        return body

    def _frame(self):
        flags = self._exactly(1)[0]
        size = struct.unpack(">Q", self._exactly(8))[0] if flags & 0x02 else self._exactly(1)[0]
        return flags & ~0x02, self._exactly(size)

    def _exactly(self, count):
        got = b""
        while len(got) < count:
            more = self._socket.recv(count - len(got))
            assert more, "the publisher has closed the connection"
            got += more
        return got

"""An engine that answers what a test likes, for tests of what asks engines. It speaks ZMTP 3.0 by hand, since ZeroMQ is
not there in Python."""

import json
import socket
import struct
import threading

COMMAND, LONG = 4, 2


class FakeEngine:
    """Answers every call with `answer`, until close(). `asked` holds the calls' params."""

    def __init__(self, answer):
        self._answer = answer
        self.asked = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
            stream.read(64)
            ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"ROUTER"
            connection.sendall(bytes([COMMAND, len(ready)]) + ready)
            while header := stream.read(1):
                flags = header[0]
                size = struct.unpack(">Q", stream.read(8))[0] if flags & LONG else stream.read(1)[0]
                body = stream.read(size)
                if not flags & COMMAND:
                    self._reply(connection, json.loads(body))

    def _reply(self, connection, message):
        if "ping" not in message:
            self.asked.append(message.get("params"))
        reply = {"pong": message["ping"]} if "ping" in message else {"id": message["id"], "result": self._answer}
        body = json.dumps(reply).encode()
        connection.sendall(bytes([LONG]) + struct.pack(">Q", len(body)) + body)

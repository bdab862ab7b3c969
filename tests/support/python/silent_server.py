"""A server that takes connections and never says a word, for tests of waits."""

import socket


class SilentServer:
    def __enter__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._clients = []
        self.endpoint = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        return self

    def wait_for_client(self):
        """Returns once a client has connected."""
        self._clients.append(self._listening.accept()[0])

    def __exit__(self, *_):
        for each in (*self._clients, self._listening):
            each.close()

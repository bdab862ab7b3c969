"""Strangers by the thousand, who begin what they never end: publishers and engines answer others meanwhile, and their
memory stays bounded (docs/security.md)."""

import contextlib
import pathlib
import resource
import select
import socket

import pytest

from program import wait_until

SOON = 60
MIB = 1 << 20
BUDGET = 8 * MIB
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(48)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


@pytest.fixture(autouse=True)
def many_descriptors():
    """Of this process and of those that it starts."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 4096:
        pytest.skip(f"needs 4096 descriptors, and there are {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, 4096), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.fixture(params=["publish", "serve"])
def listener(request, start, checkpoint):
    return start(request.param, "--model", checkpoint("llama", "a"), "--connection-budget", str(BUDGET))


@pytest.fixture
def ask(program, listener):
    """Asks it for its status, as anybody does who means well."""
    role = "--publisher" if "publish" in listener.command else "--engine"
    return lambda: program.run("status", role, listener.endpoint)


@pytest.fixture
def strangers():
    """strangers(endpoint, *bytes) -> a connection over which these were sent, if it lasted so long."""
    with contextlib.ExitStack() as opened:

        def connect(endpoint, *parts):
            host, port = endpoint.removeprefix("tcp://").split(":")
            stranger = opened.enter_context(socket.create_connection((host, int(port)), SOON))
            with contextlib.suppress(ConnectionError):
                for part in parts:
                    stranger.sendall(part)
            return stranger

        yield connect


def has_ended(stranger):
    while select.select([stranger], [], [], 0)[0]:
        try:
            if not stranger.recv(4096):
                return True
        except ConnectionError:
            return True
    return False


def peak_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def long_frame(size):
    return b"\x02" + size.to_bytes(8, "big")


def test_a_thousand_strangers_keep_nobody_out(listener, ask, strangers):
    silent = [strangers(listener.endpoint, GREETING[:number % 12]) for number in range(600)]
    begun = [strangers(listener.endpoint, GREETING, READY, long_frame(MIB) + b"x") for _ in range(400)]
    ask()
    wait_until(lambda: sum(not has_ended(one) for one in silent) <= 64, SOON, f"{listener}\nexpected few to be left")
    ask()
    assert sum(not has_ended(one) for one in begun) > 300, "who has come so far costs little, and is left alone"
    assert "127.0.0.1:" in listener.errors() and "unfinished handshakes" in listener.errors()
    listener.stop()


def test_connections_full_of_unfinished_messages_cost_no_more_than_the_budget(listener, ask, strangers):
    """The first of 320 MiB go before the last come."""
    before = peak_bytes(listener.process.pid)
    opened = []
    for _ in range(10):
        opened += [strangers(listener.endpoint, GREETING, READY, long_frame(2 * MIB), bytes(MIB)) for _ in range(32)]
        ask()
    wait_until(lambda: sum(not has_ended(one) for one in opened) <= BUDGET // MIB, SOON, f"{listener}\nexpected few to be left")
    assert peak_bytes(listener.process.pid) - before < 160 * MIB
    assert f"expected at most {BUDGET} bytes of all connections' messages" in listener.errors()
    ask()
    listener.stop()

"""Two hosts and the network between them, made of network namespaces: a publisher's, an engine's, and a router in the
middle that can limit, delay, lose and cut. Everything is inside the namespaces, which end with the processes that
hold them, however this process ends. Needs root, iproute2 and util-linux. If the machine refuses something during
set-up, the test is skipped; if it does so later, the test fails. Used by tests/end_to_end/faults/test_networks.py."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from program import wait_until

PUBLISHER, ENGINE = "10.91.1.2", "10.91.2.2"
_DELAY_TABLE = 100  # of the routing table that leads to the relay, for what is delayed
_SPARED, _CUT, _DELAYED = 10, 11, 12  # priorities of routing rules: cutting comes before delaying
_ORIGINS = ("publisher", "engine")


def _skip(what):
    """Skips the test: this machine does not allow what it needs."""
    pytest.skip(f"no network of our own here: {what}")


class _Refused(Exception):
    """This machine refused a command; the message says which, and why."""


@contextlib.contextmanager
def _or_skip():
    """Skips the test if a command in this context is refused."""
    try:
        yield
    except _Refused as refused:
        _skip(refused)


def _run(command):
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Refused(error) from error
    if done.returncode != 0:
        raise _Refused(f"{' '.join(map(str, command))}: {' '.join(done.stderr.split())}")
    return done.stdout


class Host:
    """A network namespace with a loopback of its own, and a /sys that shows its devices, which UCX reads."""

    def __init__(self, name):
        self.name = name
        held = "mount -t sysfs none /sys && ip link set lo up && echo held && exec cat"
        command = ["unshare", "--net", "--mount", "sh", "-c", held]
        try:
            self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True)
        except OSError as error:
            _skip(error)
        if self._holder.stdout.readline() != "held\n":
            _skip(f"{' '.join(command)}: {' '.join(self._holder.communicate()[1].split())}")
        self.pid = self._holder.pid
        # The prefix that makes a command run on this host. The command stays the same process.
        self.inside = ["nsenter", f"--net=/proc/{self.pid}/ns/net", f"--mount=/proc/{self.pid}/ns/mnt",
                       f"--wd={os.getcwd()}"]

    def run(self, *command):
        return _run([*self.inside, *command])

    def close(self):
        self._holder.communicate()


class Network:
    """The two hosts and the router. A direction is named by where its bytes come from: "publisher" or "engine"."""

    def __init__(self):
        with _or_skip(), contextlib.ExitStack() as stack:
            self.publisher, self._router, self.engine = (self._host(stack, name)
                                                         for name in ("publisher", "router", "engine"))
            # This sets the kernel's setting in that namespace alone.
            self._router.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self._connect(self.publisher, PUBLISHER)
            self._connect(self.engine, ENGINE)
            self._stack = stack.pop_all()

    def _host(self, stack, name):
        host = Host(name)
        stack.callback(host.close)
        return host

    def _connect(self, host, address):
        gateway = address.rpartition(".")[0] + ".1"
        self._router.run("ip", "link", "add", host.name, "type", "veth", "peer", "name", "eth0", "netns", host.pid)
        self._router.run("ip", "address", "add", f"{gateway}/24", "dev", host.name)
        self._router.run("ip", "link", "set", host.name, "up")
        host.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        host.run("ip", "route", "add", "default", "via", gateway)
        # The device is up some time after it was set up. Until then UCX takes it for one that is not in use.
        wait_until(lambda: '"UP"' in host.run("ip", "-j", "link", "show", "eth0"), 10, "eth0 did not come up")

    @contextlib.contextmanager
    def limited(self, bytes_per_second):
        """Limits what goes to the engine, by a token bucket."""
        with _or_skip():
            self._router.run("tc", "qdisc", "add", "dev", "engine", "root", "tbf", "rate", f"{8 * bytes_per_second}bit",
                             "burst", "64kb", "latency", "50ms")
        try:
            yield
        finally:
            self._router.run("tc", "qdisc", "del", "dev", "engine", "root")

    def limited_bytes(self):
        """How many bytes have passed the limit, with their headers."""
        return json.loads(self._router.run("tc", "-s", "-j", "qdisc", "show", "dev", "engine"))[0]["bytes"]

    @contextlib.contextmanager
    def delayed(self, seconds, lost, seed):
        """Delays every packet, both ways, by `seconds`; one in `lost` of them never arrives. Yields a function that
        ends this, and returns how many were brought and lost. What is on its way then is lost."""
        script = pathlib.Path(__file__).parent / "delaying_relay.py"
        relay = subprocess.Popen([*self._router.inside, sys.executable, script, "tun0", str(seconds), str(lost), str(seed)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if relay.stdout.readline() != "ready\n":
                _skip(f"no TUN device: {' '.join(relay.communicate()[1].splitlines()[-1:])}")
            self._router.run("ip", "link", "set", "tun0", "up")
            self._router.run("ip", "route", "add", "default", "dev", "tun0", "table", _DELAY_TABLE)
            with self._rules([["iif", origin, "priority", _DELAYED, "lookup", _DELAY_TABLE] for origin in _ORIGINS]):
                yield lambda: tuple(map(int, relay.communicate()[0].split()))
        finally:
            relay.communicate()

    @contextlib.contextmanager
    def cut(self, origin, but_endpoint=None):
        """Nothing from `origin` arrives, and nobody is told, except what belongs to the port of `but_endpoint`."""
        rules = [["iif", origin, "priority", _CUT, "blackhole"]]
        if but_endpoint is not None:
            port = ["sport" if origin == "publisher" else "dport", but_endpoint.rpartition(":")[2]]
            rules.insert(0, ["iif", origin, "priority", _SPARED, "ipproto", "tcp", *port, "lookup", "main"])
        with self._rules(rules):
            yield

    @contextlib.contextmanager
    def _rules(self, rules):
        """Adds rules to the router's routing."""
        with contextlib.ExitStack() as stack:
            for rule in rules:
                with _or_skip():
                    self._router.run("ip", "rule", "add", *rule)
                stack.callback(self._router.run, "ip", "rule", "del", *rule)
            yield

    def close(self):
        self._stack.close()

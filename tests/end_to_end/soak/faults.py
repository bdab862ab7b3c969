"""The faults of a soak. Each is begun before a sync, strikes at some moment of it, and is healed after it.

`killed` counts processes that were killed. What a fault leaves broken after heal() (a daemon that is gone) is started
again by the fleet."""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess

import program as layercast_program

# Where the failpoints of docs/cli.md are on the way of a snapshot.
STEPS = {"rank0": ("receive.chunk", "quantize", "verify", "commit.prepare", "commit.copy"),
         "publisher": ("answer.hello", "serve.probe", "serve.chunk")}
FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


class Fault:
    two_hosts = False  # whether it needs a network

    def __init__(self, fleet):
        self.fleet, self.random, self.killed = fleet, fleet.random, 0

    def begin(self):
        pass

    def strike(self, reload):
        """`reload` is the process of the controller."""

    def heal(self):
        pass

    def send(self, number, pids):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                self.killed += number == signal.SIGKILL

    def kill(self, member):
        """The daemon itself; returns when it is gone. Its ranks end with it."""
        self.send(signal.SIGKILL, [member.daemon.process.pid])
        member.daemon.process.wait(20)

    def any_engine(self):
        return self.random.choice(self.fleet.engines)


class KilledRank(Fault):
    """Of the engine as it is now: ranks that were started anew have other pids than at its start."""

    def strike(self, reload):
        engine = self.any_engine()
        pids = child_pids(engine.daemon.process.pid)
        self.send(signal.SIGKILL, [self.random.choice(pids)] if pids else [])


class KilledRanksOfAll(Fault):
    def strike(self, reload):
        for engine in self.fleet.engines:
            self.send(signal.SIGKILL, child_pids(engine.daemon.process.pid))


class KilledEngine(Fault):
    def strike(self, reload):
        self.kill(self.any_engine())


class KilledPublisher(Fault):
    def strike(self, reload):
        self.kill(self.fleet.publisher)


class KilledController(Fault):
    def strike(self, reload):
        self.send(signal.SIGKILL, [reload.pid])


class KilledAtAStep(Fault):
    """By a failpoint, so that it is at a step and not at a moment. They are for the first life of a daemon's ranks."""

    def begin(self):
        role = self.random.choice(("rank0", "publisher"))
        self.member = self.fleet.publisher if role == "publisher" else self.any_engine()
        failpoint = f"{role}:{self.random.choice(STEPS[role])}=kill@{self.random.randrange(12)}"
        self.member.daemon.kill()
        self.fleet.start(self.member, failpoint)
        self.killed += 1

    def heal(self):
        self.killed += "fired" in self.member.daemon.errors()


class Frozen(Fault):
    """A process that neither ends nor does anything, until after the sync."""

    def strike(self, reload):
        member = self.random.choice(self.fleet.members)
        self.pids = [self.random.choice([member.daemon.process.pid, *child_pids(member.daemon.process.pid)])]
        self.send(signal.SIGSTOP, self.pids)

    def heal(self):
        self.send(signal.SIGCONT, self.pids)


class NoMemory(Fault):
    """A rank whose address space may not grow."""

    def strike(self, reload):
        self.was = {}
        for pid in child_pids(self.any_engine().daemon.process.pid):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0])
                self.was[pid] = resource.prlimit(pid, resource.RLIMIT_AS)
                resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize(), self.was[pid][1]))

    def heal(self):
        lift(resource.RLIMIT_AS, self.was)


class NoDescriptors(Fault):
    def strike(self, reload):
        self.was = {}
        member = self.random.choice(self.fleet.members)
        for pid in [member.daemon.process.pid, *child_pids(member.daemon.process.pid)]:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                self.was[pid] = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                few = layercast_program.open_files(pid) + self.random.randrange(3)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, self.was[pid][1]))

    def heal(self):
        lift(resource.RLIMIT_NOFILE, self.was)


class FullDisk(Fault):
    """What an engine serves is written to a file system that has no room for it, while it takes a version."""

    def begin(self):
        self.folder = self.fleet.engine_program.scratch / "full"
        self.folder.mkdir(exist_ok=True)
        self.mounted = subprocess.run([*self.fleet.engine_program.within, "mount", "-t", "tmpfs", "-o", "size=256k", "none",
                                       str(self.folder)], capture_output=True).returncode == 0

    def strike(self, reload):
        self.exporting = self.fleet.engine_program.start("export", "--engine", self.any_engine().endpoint, "--out", self.folder / "out")

    def heal(self):
        outcome = self.fleet.engine_program.finish(self.exporting, status=None)
        if self.mounted:
            subprocess.run([*self.fleet.engine_program.within, "umount", "-l", str(self.folder)], check=True)
            assert outcome.status == 1 and outcome.json["error"]["code"] != "internal", outcome


class FullSharedMemory(Fault):
    """/dev/shm of the engines' host has no room."""

    two_hosts = True

    def begin(self):
        self.fleet.network.engine.run("mount", "-t", "tmpfs", "-o", "size=4k", "none", "/dev/shm")

    def heal(self):
        self.fleet.network.engine.run("umount", "-l", "/dev/shm")


class OtherClock(Fault):
    """An engine whose monotonic clock is another than its peers', as in another container."""

    def begin(self):
        engine = self.any_engine()
        engine.daemon.kill()
        self.killed += 1
        offset = self.random.choice((3_600, 10_000_000))
        self.fleet.start(engine, within=("unshare", "--time", "--monotonic", str(offset), "--boottime", str(offset), "--fork",
                                         "--kill-child"))


class WallClockJumps(Fault):
    """Of an engine and its ranks: hours forth, then a day back, in the midst of a sync."""

    def begin(self):
        engine = self.any_engine()
        engine.daemon.kill()
        self.killed += 1
        self.file = engine.program.scratch / "time"
        self.file.write_text("+0")
        self.fleet.start(engine, within=("env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME_TIMESTAMP_FILE={self.file}",
                                         "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"))

    def strike(self, reload):
        self.file.write_text("+7200")

    def heal(self):
        self.file.write_text("-86400")


class Cut(Fault):
    """Nothing comes from one of the hosts any more."""

    two_hosts = True

    def strike(self, reload):
        self.cut = contextlib.ExitStack()
        self.cut.enter_context(self.fleet.network.cut(self.random.choice(("publisher", "engine"))))

    def heal(self):
        self.cut.close()


class SlowLink(Fault):
    two_hosts = True

    def begin(self):
        self.limit = contextlib.ExitStack()
        self.limit.enter_context(self.fleet.network.limited(self.random.choice((400_000, 4_000_000))))

    def heal(self):
        self.limit.close()


def child_pids(pid):
    """Of a daemon: its ranks, also those that were started anew."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for file in children for child in file.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def lift(which, limits):
    for pid, was in limits.items():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, which, was)


KINDS = {"rank killed": KilledRank, "all ranks killed": KilledRanksOfAll, "engine killed": KilledEngine, "publisher killed": KilledPublisher,
         "controller killed": KilledController, "killed at a step": KilledAtAStep, "process frozen": Frozen, "no memory": NoMemory,
         "no descriptors": NoDescriptors, "disk full": FullDisk, "/dev/shm full": FullSharedMemory, "another clock": OtherClock,
         "link cut one way": Cut, "slow link": SlowLink, **({"wall clock jumps": WallClockJumps} if FAKETIME.is_file() else {})}


def possible(fleet):
    return [kind for kind, fault in KINDS.items() if fleet.network or not fault.two_hosts]

"""The program `layercast` as tests drive it: real processes, its JSON, its exit statuses (docs/cli.md).
Used by the tests of the program: tests/cli and tests/end_to_end."""

import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import time
import unicodedata

# What would change what is tested: this process may run under a launcher.
NOT_INHERITED = ("LAYERCAST_FAILPOINTS", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
READY_SECONDS = 60
COMMAND_SECONDS = 60
MOST_COLUMNS = 160  # of a line for people


class ProgramFailed(AssertionError):
    """The message has what was run, what it printed, and the end of its standard error."""


def tail(text, lines=25):
    return "\n".join(text.splitlines()[-lines:])


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A command that has ended."""

    command: list
    status: int
    output: str
    errors: str

    @property
    def json(self):
        lines = self.output.splitlines()
        if len(lines) != 1:
            raise ProgramFailed(f"{self}\nexpected one JSON object on standard output")
        return json.loads(lines[0])

    def __str__(self):
        return (f"$ {' '.join(self.command)}\nexit status {self.status}\nstdout: {self.output[-4000:]}\n"
                f"stderr (end):\n{tail(self.errors)}")


class Program:
    """Runs subcommands with --json. Each method takes the exit status that it expects, so that no failure goes
    unnoticed. `within` is a command prefix that runs the program somewhere else, and becomes it."""

    def __init__(self, path, scratch, within=()):
        self.path = pathlib.Path(path)
        self.scratch = pathlib.Path(scratch)
        self.within = list(within)
        self._started = 0

    def on(self, host):
        """The same program on a host of network.py."""
        scratch = self.scratch / host.name
        scratch.mkdir(exist_ok=True)
        return Program(self.path, scratch, host.inside)

    def run(self, *arguments, status=0, timeout=COMMAND_SECONDS):
        return self.finish(self.start(*arguments), status, timeout)

    def refused(self, *arguments, status=1):
        """The error with which a command ends. Checks that its JSON and its text for people have the same words."""
        outcome = self.run(*arguments, status=status)
        error = outcome.json["error"]
        assert error["message"] in outcome.errors
        return error

    def start(self, *arguments):
        """Starts a command in the background; finish() waits for it."""
        command = self._command(arguments)
        return command, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, started, status=0, timeout=COMMAND_SECONDS):
        command, process = started
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            raise ProgramFailed(f"{Outcome(command, -1, output, errors)}\nnot done after {timeout} s") from None
        outcome = Outcome(command, process.returncode, output, errors)
        if status is not None and outcome.status != status:
            raise ProgramFailed(f"{outcome}\nexpected exit status {status}")
        return outcome

    def text(self, *arguments):
        """What the program prints for people."""
        return self.for_people(*arguments).output

    def for_people(self, *arguments, status=0):
        """Runs a command without --json, and checks the width of what it tells."""
        command = [*self.within, str(self.path), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
        outcome = Outcome(command, done.returncode, done.stdout, done.stderr)
        if outcome.status != status:
            raise ProgramFailed(f"{outcome}\nexpected exit status {status}")
        if arguments[0] in ("plan", "reload", "status"):
            assert all(columns(line) <= MOST_COLUMNS for line in outcome.output.splitlines()), outcome
        return outcome

    def daemon(self, *arguments, failpoints="", confined=False):
        """`confined`: an engine that takes no more paths from its callers than its arguments say. Others take any, since
        tests keep their checkpoints where they like."""
        self._started += 1
        if arguments[0] == "serve" and not confined:
            arguments = (*arguments, "--allow-path", "/")
        log = self.scratch / f"{arguments[0]}-{self._started}.stderr"
        return Daemon(self._command(arguments), log, failpoints)

    def _command(self, arguments):
        return [*self.within, str(self.path), *map(str, arguments), "--json"]

    # The following run the client subcommands, and return what these print.

    def reload(self, engine, *arguments, status=0, **options):
        return self.run("reload", "--engine", endpoint(engine), *arguments, status=status, **options).json["engines"][0]

    def generate(self, engine, tokens, *arguments, **options):
        prompt = ",".join(map(str, tokens))
        return self.run("generate", "--engine", endpoint(engine), "--tokens", prompt, *arguments, **options).json

    def status(self, engine):
        return self.run("status", "--engine", endpoint(engine)).json

    def export(self, engine, folder):
        return self.run("export", "--engine", endpoint(engine), "--out", folder).json


def columns(line):
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def endpoint(daemon):
    return daemon if isinstance(daemon, str) else daemon.endpoint


class Daemon:
    """A running `publish` or `serve`, ready when constructed. stop() checks for a clean end; kill() always ends it."""

    def __init__(self, command, log, failpoints=""):
        self.command, self.log = command, log
        environment = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
        if failpoints:
            environment["LAYERCAST_FAILPOINTS"] = failpoints
        with open(log, "w") as errors:
            # It gets a session of its own, so that kill() reaches its ranks and nothing else.
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
                                            start_new_session=True)
        try:
            self.ready = self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        self.endpoint, self.pids = self.ready["endpoint"], self.ready["pids"]
        self.version = self.ready["version"]

    def _wait_until_ready(self):
        readable, _, _ = select.select([self.process.stdout], [], [], READY_SECONDS)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            raise ProgramFailed(f"$ {' '.join(self.command)}\nnot ready after {READY_SECONDS} s (exit status "
                                f"{self.process.poll()})\nstderr (end):\n{tail(self.errors())}")
        ready = json.loads(line)
        if ready.get("ready") is not True:
            raise ProgramFailed(f"$ {' '.join(self.command)}\nsaid {line}stderr (end):\n{tail(self.errors())}")
        return ready

    def errors(self):
        return self.log.read_text(errors="replace")

    def all_pids(self):
        return sorted({self.process.pid, *self.pids})

    def signal(self, number):
        self.process.send_signal(number)

    def freeze(self):
        """Stops the process itself, not its ranks. SIGSTOP takes effect some time after it is sent: this returns when
        it has."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: _state(self.process.pid) == "T", 20, f"{self}: it was not stopped")

    def stop(self, timeout=20):
        """Sends SIGTERM. The daemon must end with status 0, and all its processes with it."""
        self.process.terminate()
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"{self}\nstill there {timeout} s after SIGTERM") from None
        if status != 0:
            raise ProgramFailed(f"{self}\nexit status {status} after SIGTERM")
        wait_until(lambda: not any(is_running(pid) for pid in self.pids), 5, f"{self}: a process outlived it")

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdout.close()

    def __str__(self):
        return f"$ {' '.join(self.command)}\nstderr (end):\n{tail(self.errors())}"


def _state(pid):
    """The letter that the kernel has for what the process does; X: it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def is_running(pid):
    return _state(pid) not in "ZX"


def wait_until(condition, seconds, otherwise):
    """Polls a condition that only another process can make true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ProgramFailed(otherwise)
        time.sleep(0.01)


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def anonymous_bytes(pid):
    """Memory that is the process's alone, and no file's: what its allocator holds."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise ProgramFailed(f"process {pid} has no memory")


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProgramFailed(f"process {pid} has no memory")

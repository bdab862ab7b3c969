"""What must hold of every answer, every engine and every process of a soak, whatever was done to them."""

import itertools
import threading

import program as layercast_program
from fleet import MAX_NEW, PROMPT, key, served_digests

SIGNALS_OF_A_CRASH = ("signal 4 ", "signal 6 ", "signal 7 ", "signal 8 ", "signal 11 ")
BYTES_A_ROUND = 20_000  # an allocator takes another page now and then


class Violation(Exception):
    pass


def check_answer(answer, letters, tokens):
    """Each token is the one that a cold engine of the version says which its span names; an answer is of one version."""
    versions = {key(span["version"]) for span in answer["spans"]}
    if len(versions) > 1:
        raise Violation(f"an answer is of {len(versions)} versions: {answer}")
    for version in versions:
        if version not in letters:
            raise Violation(f"an answer is of {version}, which nobody offered")
        if answer["tokens"] != tokens[letters[version]][: len(answer["tokens"])]:
            raise Violation(f"tokens of {version} are not those of a cold engine: {answer}")


def check_engine(fleet, engine, expected):
    """It serves one whole version, whose bytes are those of a cold load, on every rank."""
    status = engine.program.status(engine.daemon)
    if status["state"] != "serving" or status["torn"] is not None:
        raise Violation(f"{engine.name}: {status['state']}, torn: {status['torn']}")
    letter = fleet.letters.get(key(status["version"]))
    if letter is None:
        raise Violation(f"{engine.name} serves {status['version']}, which nobody offered")
    if served_digests(status) != expected.digests[letter, engine.tp]:
        raise Violation(f"{engine.name} serves other bytes than those of {status['version']}")
    return key(status["version"])


def check_command(outcome):
    """A command ends by itself, with an answer that says what is wrong."""
    if outcome.status < 0:
        raise Violation(f"a command died of signal {-outcome.status}: {outcome}")
    error = outcome.json.get("error") or {}
    if error.get("code") == "internal":
        raise Violation(f"an error without a cause: {outcome}")
    return error.get("code", "ok")


def crashes(member):
    return [line for line in member.daemon.errors().splitlines() if any(signal in line for signal in SIGNALS_OF_A_CRASH)]


class Growth:
    """Memory and descriptors of each process, by round. What leaks grows all the time."""

    def __init__(self):
        self.samples = {}  # pid -> [(bytes, descriptors)]

    def look(self, pids):
        for pid in pids:
            try:
                sample = layercast_program.anonymous_bytes(pid), layercast_program.open_files(pid)
            except (FileNotFoundError, ProcessLookupError, layercast_program.ProgramFailed):
                continue
            self.samples.setdefault(pid, []).append(sample)

    def leaks(self, least=16):
        """Of processes that were looked at so often at least, after a first quarter in which they warm up."""
        found = []
        for pid, samples in self.samples.items():
            if len(samples) < least:
                continue
            quarter = len(samples) // 4
            marks = [samples[quarter], samples[2 * quarter], samples[3 * quarter], samples[-1]]
            steps = [(after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(marks)]
            if min(step[0] for step in steps) > BYTES_A_ROUND * quarter:
                found.append(f"process {pid} grows: {[mark[0] for mark in marks]} bytes")
            if min(step[1] for step in steps) > 0:
                found.append(f"process {pid} opens more and more: {[mark[1] for mark in marks]} descriptors")
        return found


class Asking:
    """Asks an engine all the time, whatever happens to it, and checks every answer."""

    def __init__(self, engine, fleet, tokens, say):
        """`say(codes, answers, violation)` is called after each command."""
        self.engine, self.fleet, self.tokens, self.say = engine, fleet, tokens, say
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._ask_on)
        self.thread.start()

    def _ask_on(self):
        while not self.ended.is_set():
            daemon = self.engine.daemon
            command = ("generate", "--engine", daemon.endpoint, "--tokens", ",".join(map(str, PROMPT)), "--max-new", MAX_NEW,
                       "--repeat", 5, "--timeout", 30)
            code, answers, violation = "ok", [], None
            try:
                outcome = self.engine.program.run(*command, status=None, timeout=60)
                code = check_command(outcome)
                answers = outcome.json.get("answers", [])
                for answer in answers:
                    check_answer(answer, self.fleet.letters, self.tokens)
            except (Violation, layercast_program.ProgramFailed) as failed:
                violation = str(failed)
            self.say(code, answers, violation)
            self.ended.wait(0.05)

    def end(self):
        self.ended.set()
        self.thread.join()

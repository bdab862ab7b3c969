"""What is soaked: a publisher, three engines (one rank, two ranks, one that relays), all of one model, on one host or on
two, and what each of them must say when asked."""

import dataclasses
import random

import network as networks
import program as layercast_program

RECIPE = "fp8_per_channel"
PROMPT = (3, 11, 4, 250)
MAX_NEW = 24
LETTERS = ("a", "b")
LINEAGE = "soak"
WITHIN = 60  # seconds in which whatever has no fault on it must be done


class Expected:
    """What engines that loaded a checkpoint cold say and hold: by letter and number of ranks."""

    def __init__(self, program, folders):
        self.tokens, self.digests = {}, {}
        for letter in LETTERS:
            for tp in (1, 2):
                engine = program.daemon("serve", "--model", folders[letter], "--tp", tp, "--quantization", RECIPE)
                try:
                    answer = program.generate(engine, PROMPT, "--max-new", MAX_NEW)
                    self.tokens[letter, tp] = answer["tokens"]
                    self.digests[letter, tp] = served_digests(program.status(engine))
                finally:
                    engine.kill()
        assert all(self.tokens["a", tp] != self.tokens["b", tp] for tp in (1, 2))


def served_digests(status):
    return [rank["served_digest"] for rank in status["ranks"]]


def key(version):
    return version["lineage"], version["step"], version["digest"]


@dataclasses.dataclass
class Member:
    """One daemon, and how to start it again."""

    name: str
    program: layercast_program.Program
    arguments: list
    tp: int = 0
    daemon: layercast_program.Daemon = None

    def start(self, failpoints="", within=()):
        """`within`: a command that runs it otherwise than usual, for this life."""
        on = layercast_program.Program(self.program.path, self.program.scratch / self.name, [*self.program.within, *within])
        on.scratch.mkdir(exist_ok=True)
        self.daemon = on.daemon(*self.arguments, failpoints=failpoints)

    @property
    def alive(self):
        return self.daemon is not None and self.daemon.process.poll() is None

    @property
    def endpoint(self):
        return self.daemon.endpoint


class Fleet:
    """`network` is that of network.py, or None: all are on one host."""

    def __init__(self, program, folders, network, commit, seed):
        self.folders, self.network, self.random = folders, network, random.Random(seed)
        self.engine_program = program.on(network.engine) if network else program
        self.publisher_program = program.on(network.publisher) if network else program
        self.letters = {}  # the letter of each version that was ever offered or served
        self.step = 0
        self.channels = ["zmq"] if network else ["shm", "zmq"]
        a = folders["a"]
        serve = ["serve", "--model", a, "--quantization", RECIPE, "--commit", commit, "--chunk-bytes", 16384]
        self.engines = [Member("one", self.engine_program, serve, 1),
                        Member("two", self.engine_program, [*serve, "--tp", 2], 2),
                        Member("relay", self.engine_program, [*serve, "--relay", "tcp://127.0.0.1:0"], 1)]
        self.publisher = Member("publisher", self.publisher_program, [])

    @property
    def members(self):
        return [self.publisher, *self.engines]

    def start(self, member, failpoints="", within=()):
        if member is self.publisher:
            self.step += 1
            bind = ["--bind", f"tcp://{networks.PUBLISHER}:0", "--insecure"] if self.network else []
            member.arguments = ["publish", "--model", self.folders[self.letter(self.step)], "--lineage", LINEAGE, "--step", self.step,
                                "--allow-path", self.folders["a"].parent, *bind]
        member.start(failpoints, within)
        self.letters[key(member.daemon.version)] = self.letter(self.step) if member is self.publisher else "a"

    def start_what_is_down(self):
        for member in self.members:
            if not member.alive:
                self.start(member)

    @staticmethod
    def letter(step):
        return LETTERS[step % len(LETTERS)]

    def publish(self):
        """The next version: the other checkpoint."""
        self.step += 1
        letter = self.letter(self.step)
        version = self.publisher_program.run("publish", "--to", self.publisher.endpoint, "--model", self.folders[letter],
                                             "--step", self.step).json["version"]
        self.letters[key(version)] = letter
        return version

    def reloading(self, *arguments):
        endpoints = ",".join(engine.endpoint for engine in self.engines)
        return self.engine_program.start("reload", "--engine", endpoints, "--publisher", self.publisher.endpoint, *arguments)

    def kill(self):
        for member in self.members:
            if member.daemon is not None:
                member.daemon.kill()

"""Runs a fleet through syncs, each of which is struck by a fault, and checks after each that nothing was lost, mixed or left
waiting. scripts/soak is its command; docs/reliability.md has what it found."""

import argparse
import pathlib
import random
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tests/support/python")]

import checkpoints  # noqa: E402
import checks  # noqa: E402
import faults  # noqa: E402
import fleet as fleets  # noqa: E402
import network as networks  # noqa: E402
import program as layercast_program  # noqa: E402
import tally as tallies  # noqa: E402

ROUNDS_OF_AN_EPISODE = 24
SYNC_SECONDS = 30  # what a sync may take that something happens to; it is told to
PATIENCE = 15  # how much longer its command may take to end


class Episode:
    """One fleet, from its start to its end."""

    def __init__(self, fleet, expected, tally, seed):
        self.fleet, self.expected, self.tally, self.seed = fleet, expected, tally, seed
        self.growth, self.round = checks.Growth(), 0
        self.telling = threading.Lock()
        self.asking = []

    def __enter__(self):
        self.fleet.start_what_is_down()
        for engine in self.fleet.engines:
            tokens = {letter: self.expected.tokens[letter, engine.tp] for letter in fleets.LETTERS}
            self.asking.append(checks.Asking(engine, self.fleet, tokens, self.heard))
        return self

    def __exit__(self, *_):
        for asking in self.asking:
            asking.end()
        for leak in self.growth.leaks():
            self.violated(leak)
        self.tally.checked["processes for leaks"] += sum(len(samples) >= 16 for samples in self.growth.samples.values())
        self.fleet.kill()

    def violated(self, what):
        self.tally.violated(what, seed=self.seed, round=self.round)
        print(f"VIOLATION: {what}", file=sys.stderr, flush=True)

    def heard(self, code, answers, violation):
        with self.telling:
            self.tally.checked["answers"] += len(answers)
            if code != "ok":
                self.tally.refused[code] += 1
            if violation:
                self.violated(violation)

    def run_round(self, kind):
        """One sync that is struck, and the sync after it."""
        self.round += 1
        try:
            outcome, killed = self.struck_sync(kind)
            began = time.monotonic()
            self.recover()
            with self.telling:
                self.tally.struck(kind, outcome, killed)
                self.tally.recovered(time.monotonic() - began)
        except (checks.Violation, AssertionError) as failed:
            with self.telling:
                self.violated(f"{kind}: {failed}")
            self.fleet.kill()  # the next round begins with a whole fleet
        self.fleet.start_what_is_down()
        for member in self.fleet.members:
            self.growth.look([member.daemon.process.pid, *faults.child_pids(member.daemon.process.pid)])

    def struck_sync(self, kind):
        choose = self.fleet.random
        fault = faults.KINDS[kind](self.fleet)
        fault.begin()
        self.fleet.publish()
        how = ["--channel", choose.choice(self.fleet.channels), "--timeout", SYNC_SECONDS]
        how += ["--all-or-none"] if self.commits_whole and choose.random() < 0.3 else []
        command, process = self.fleet.reloading(*how)
        try:
            time.sleep(choose.uniform(0, 0.4))  # the moment of the fault, not a wait for anything
            fault.strike(process)
            outcome = self.fleet.engine_program.finish((command, process), status=None, timeout=SYNC_SECONDS + PATIENCE)
        finally:
            fault.heal()
        if kind == "controller killed" and outcome.status == -9:
            return "killed", fault.killed
        code = checks.check_command(outcome)
        engines = outcome.json.get("engines", [])
        return ("taken by all" if code == "ok" and all(engine["ok"] for engine in engines) else
                "taken by some" if any(engine["ok"] for engine in engines) else "refused"), fault.killed

    @property
    def commits_whole(self):
        return "staged" in self.fleet.engines[0].arguments

    def recover(self):
        """With no fault left, every engine takes the newest version and serves it, byte for byte."""
        for member in self.fleet.members:
            for line in checks.crashes(member):
                raise checks.Violation(f"{member.name}: {line}")
        deadline = time.monotonic() + fleets.WITHIN
        while True:
            self.fleet.start_what_is_down()  # also what a failpoint that struck nothing before has killed now
            wanted = fleets.key(self.fleet.publish())
            outcome = self.fleet.engine_program.finish(self.fleet.reloading("--timeout", SYNC_SECONDS), status=None)
            if checks.check_command(outcome) == "ok" and all(engine["ok"] for engine in outcome.json["engines"]):
                break
            if time.monotonic() > deadline:
                raise checks.Violation(f"no engine should have anything against it, {fleets.WITHIN} s after the fault: {outcome}")
        for engine in self.fleet.engines:
            got = checks.check_engine(self.fleet, engine, self.expected)
            if got != wanted:
                raise checks.Violation(f"{engine.name} serves {got}, expected {wanted}")
            self.tally.checked["engines byte for byte"] += 1


def soak(program, folders, tally, file, enough, seed, kinds=None):
    """Runs episodes until enough(tally) says so. Each is reproduced by its seed."""
    choose = random.Random(seed)
    expected = fleets.Expected(program, folders)
    episode = 0
    while not enough(tally):
        episode += 1
        network = networks.Network() if episode % 2 == 0 else None
        try:
            commit = choose.choice(("staged", "staged", "undo", "in_place"))
            fleet = fleets.Fleet(program, folders, network, commit, choose.randrange(2**32))
            with Episode(fleet, expected, tally, seed) as running:
                possible = [kind for kind in faults.possible(fleet) if kinds is None or kind in kinds]
                for turn in range(ROUNDS_OF_AN_EPISODE):
                    began = time.monotonic()
                    # Every kind comes once in a while, kills most often.
                    kind = choose.choice(possible if turn % 2 else [one for one in possible if "killed" in one] or possible)
                    running.run_round(kind)
                    tally.seconds += time.monotonic() - began
                    if file is not None:
                        tally.write(file)
                    print(f"episode {episode} ({commit}, {'two hosts' if network else 'one host'}), round {running.round}: {kind}",
                          file=sys.stderr, flush=True)
                    if enough(tally):
                        break
        finally:
            if network is not None:
                network.close()
        if file is not None:
            tally.write(file)


def main():
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, help="ends after so many, whatever was killed by then")
    parser.add_argument("--kills", type=int, default=500, help="ends when so many processes were killed in this run (%(default)s)")
    parser.add_argument("--resume", type=pathlib.Path, metavar="FILE", help="adds up in FILE, which begins anew when the sources did")
    parser.add_argument("--seed", type=int, help="of what is done when; by default another each time, which is told")
    parser.add_argument("--kind", action="append", choices=faults.KINDS, help="only this kind of fault; may be repeated")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/bin/layercast")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", file=sys.stderr)
    tally = tallies.Tally.resumed(arguments.resume, tallies.state_of_the_sources(ROOT))
    tally.runs += 1
    killed_before, violated_before, began = tally.processes_killed, len(tally.violations), time.monotonic()

    def enough(now):
        late = arguments.minutes is not None and time.monotonic() - began > 60 * arguments.minutes
        return late or now.processes_killed - killed_before >= arguments.kills

    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        folders = {letter: checkpoints.make("qwen3", folder, letter) for letter in fleets.LETTERS}
        soak(layercast_program.Program(arguments.program, folder), folders, tally, arguments.resume, enough, seed, arguments.kind)
    print(tally.table())
    for violation in tally.violations[violated_before:]:
        print(f"VIOLATION: {violation}")
    sys.exit(len(tally.violations) > violated_before)


if __name__ == "__main__":
    main()

"""What a soak has seen, added up over runs in a file: faults by kind, how they ended, what was checked, and violations.

A tally is of one state of the files on a sync's path. When one of them changes it starts again, since what the old code
withstood says nothing of the new."""

import collections
import hashlib
import json
import os
import pathlib
import subprocess

PATH_OF_A_SYNC = ("include", "src", "trainer_side", "engine_side", "cli")


def state_of_the_sources(root):
    """A digest of the tracked files on the path, as they are in the working tree."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", *PATH_OF_A_SYNC], capture_output=True, text=True, check=True)
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        file = pathlib.Path(root) / name
        digest.update(name.encode() + b"\0" + (file.read_bytes() if file.is_file() else b"") + b"\0")
    return digest.hexdigest()


class Tally:
    def __init__(self, state):
        self.state, self.runs, self.seconds = state, 0, 0.0
        self.faults = collections.Counter()  # by kind
        self.outcomes = {}  # kind -> Counter of how the command ended that it struck
        self.checked = collections.Counter()  # what was looked at, and found right
        self.refused = collections.Counter()  # requests by their error's code, while something was broken
        self.processes_killed = 0
        self.longest_recovery_s = 0.0
        self.violations = []

    @classmethod
    def resumed(cls, file, state):
        """What the file has, if it is of this state; else a new one."""
        if file is None or not file.is_file():
            return cls(state)
        kept = json.loads(file.read_text())
        tally = cls(state)
        if kept["state"] != state:
            return tally
        for name, value in kept.items():
            mine = getattr(tally, name)
            if isinstance(mine, collections.Counter):
                value = collections.Counter(value)
            setattr(tally, name, value)
        tally.outcomes = {kind: collections.Counter(counts) for kind, counts in tally.outcomes.items()}
        return tally

    def struck(self, kind, outcome, killed):
        self.faults[kind] += 1
        self.outcomes.setdefault(kind, collections.Counter())[outcome] += 1
        self.processes_killed += killed

    def recovered(self, seconds):
        self.longest_recovery_s = max(self.longest_recovery_s, seconds)

    def violated(self, what, **where):
        self.violations.append({"what": what, **where})

    def write(self, file):
        """Replaces the file whole, so that a soak that is killed loses one round and not the tally."""
        beside = file.with_name(file.name + ".new")
        beside.write_text(json.dumps(vars(self), indent=1) + "\n")
        os.replace(beside, file)

    def table(self):
        """For people, and for docs/reliability.md."""
        lines = ["| fault | times | how the sync that it struck ended |", "|---|---|---|"]
        for kind, times in sorted(self.faults.items()):
            ends = ", ".join(f"{outcome} {count}" for outcome, count in self.outcomes[kind].most_common())
            lines.append(f"| {kind} | {times} | {ends} |")
        checked = ", ".join(f"{count} {what}" for what, count in sorted(self.checked.items()))
        lines += ["", f"{self.runs} runs, {self.seconds / 60:.0f} minutes, {sum(self.faults.values())} faults, "
                      f"{self.processes_killed} processes killed, longest recovery {self.longest_recovery_s:.1f} s.",
                  f"Checked: {checked}.",
                  f"Violations: {len(self.violations)}."]
        return "\n".join(lines)

"""The soak itself: each kind of fault strikes once and is recovered from, and what a soak looks for it finds."""

import json
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import checks  # noqa: E402
import faults  # noqa: E402
import fleet as fleets  # noqa: E402
import network as networks  # noqa: E402
import program as layercast_program  # noqa: E402
import soak  # noqa: E402
import tally as tallies  # noqa: E402

LETTERS = {("run", 1, "d1"): "a", ("run", 2, "d2"): "b"}
TOKENS = {"a": [1, 2, 3, 4], "b": [5, 6, 7, 8]}


def version(step):
    return {"lineage": "run", "step": step, "digest": f"d{step}"}


def answer(tokens, *steps):
    return {"tokens": tokens, "spans": [{"start": 0, "end": len(tokens), "version": version(step)} for step in steps]}


@pytest.fixture(scope="module")
def folders(checkpoint):
    return {letter: checkpoint("qwen3", letter) for letter in fleets.LETTERS}


@pytest.fixture(scope="module")
def expected(program, folders):
    return fleets.Expected(program, folders)


@pytest.mark.parametrize("where", ["one host", "two hosts"])
def test_every_fault_is_recovered_from(where, program, folders, expected, tmp_path):
    network = networks.Network() if where == "two hosts" else None
    try:
        fleet = fleets.Fleet(program, folders, network, "staged", seed=3)
        tally = tallies.Tally("state")
        kinds = [kind for kind in faults.possible(fleet) if (network is None) != faults.KINDS[kind].two_hosts]
        with soak.Episode(fleet, expected, tally, seed=3) as episode:
            for kind in kinds:
                episode.run_round(kind)
    finally:
        if network is not None:
            network.close()
    assert tally.violations == []
    assert dict(tally.faults) == dict.fromkeys(kinds, 1)
    assert tally.checked["engines byte for byte"] == 3 * len(kinds) and tally.checked["answers"] > 0
    assert (tally.processes_killed > 0) == (network is None)
    tally.write(tmp_path / "tally.json")
    assert f"{len(kinds)} faults" in tallies.Tally.resumed(tmp_path / "tally.json", "state").table()


@pytest.mark.parametrize("wrong, says", [
    (answer([1, 2, 7, 4], 1), "not those of a cold engine"),
    (answer([1, 2, 7, 8], 1, 2), "of 2 versions"),
    (answer([1, 2], 3), "nobody offered"),
])
def test_a_wrong_answer_is_found(wrong, says):
    checks.check_answer(answer([1, 2, 3], 1), LETTERS, TOKENS)
    checks.check_answer(answer([5, 6, 7, 8], 2), LETTERS, TOKENS)
    with pytest.raises(checks.Violation, match=says):
        checks.check_answer(wrong, LETTERS, TOKENS)


def test_a_command_that_crashes_or_says_no_cause_is_found():
    def ended(status, said):
        return layercast_program.Outcome(["reload"], status, json.dumps(said), "")

    assert checks.check_command(ended(0, {})) == "ok"
    assert checks.check_command(ended(1, {"error": {"code": "unavailable"}})) == "unavailable"
    for status, said in ((-11, {}), (1, {"error": {"code": "internal"}})):
        with pytest.raises(checks.Violation):
            checks.check_command(ended(status, said))


def test_what_grows_all_the_time_is_found_and_what_warms_up_is_not():
    growth = checks.Growth()
    growth.samples = {1: [(10**6 + 50_000 * at, 9) for at in range(20)], 2: [(10**6, 9 + at) for at in range(20)],
                      3: [(10**6 * min(at, 4), 5 + min(at, 3)) for at in range(20)], 4: [(10**6 * at, at) for at in range(8)]}
    leaks = growth.leaks()
    assert len(leaks) == 2 and "process 1 grows" in leaks[0] and "process 2 opens" in leaks[1]


def test_a_tally_adds_up_until_the_sources_change(tmp_path):
    file = tmp_path / "tally.json"
    for runs in (1, 2):
        tally = tallies.Tally.resumed(file, "state")
        tally.runs += 1
        tally.struck("rank killed", "taken by all", killed=2)
        tally.recovered(0.5)
        tally.checked["answers"] += 10
        tally.violated("something", seed=1)
        tally.write(file)
        assert tally.runs == runs and tally.faults["rank killed"] == runs and tally.processes_killed == 2 * runs
        assert tally.checked["answers"] == 10 * runs and len(tally.violations) == runs
    changed = tallies.Tally.resumed(file, "another state")
    assert changed.runs == 0 and not changed.faults and not changed.violations


def test_the_state_of_the_sources_is_of_what_is_on_the_path():
    state = tallies.state_of_the_sources(soak.ROOT)
    assert state == tallies.state_of_the_sources(soak.ROOT) and len(state) == 64

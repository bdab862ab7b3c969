"""An engine that sleeps: its memory goes back to the system and its addresses stay; it refuses by name, wakes up with what
was kept, is filled where nothing was, and sleeps on when it cannot wake up."""

import os

import pytest

from program import ProgramFailed
from reload_setting import PROMPT, RECIPE

POLICIES = ("staged", "undo", "in_place")


def held(engine, kind):
    """Bytes of the system's memory behind the memory files of all ranks, which the engine's process holds."""
    folder = f"/proc/{engine.ready['pid']}/fd"
    files = [f"{folder}/{fd}" for fd in os.listdir(folder)]
    return sum(os.stat(file).st_blocks * 512 for file in files if f"layercast-{kind}-rank-" in os.readlink(file))


def sleep(setting, *words, **options):
    return setting.program.run("sleep", "--engine", setting.engine.endpoint, *words, **options).json["outcomes"][0]


def wake_up(setting, *words, **options):
    return setting.program.run("wake", "--engine", setting.engine.endpoint, *words, **options).json["outcomes"][0]


def refusal(setting, *words):
    return setting.program.run(*words, "--engine", setting.engine.endpoint, status=1).json["error"]["message"]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_discarded_is_filled_by_the_next_reload_at_the_same_addresses(policy, setting, tmp_path):
    setting.serve(policy)
    before = setting.program.status(setting.engine)["ranks"]
    weights = held(setting.engine, "weights")
    for round in range(3):
        done = sleep(setting, "--level", 2)
        assert held(setting.engine, "weights") == held(setting.engine, "staging") == 0
        assert done["given_back"] >= weights
        status = setting.program.status(setting.engine)
        assert status["state"] == "asleep" and status["version"] is None
        assert status["asleep"] == {"level": 2, "tags": ["kv_cache", "weights"]}
        assert status["torn"]["from"] == setting.versions["a"]
        words = "the engine is asleep (kv_cache, weights at level 2): wake it up first"
        assert words in refusal(setting, "generate", "--tokens", "1,2")
        assert words in refusal(setting, "export", "--out", tmp_path / "out")
        assert words in refusal(setting, "verify", "--model", setting.folders["a"])
        assert sleep(setting, "--level", 2)["given_back"] == 0  # it sleeps on
        setting.reload("--model", setting.folders["b"], status=0)
        assert setting.program.status(setting.engine)["asleep"] == {"level": None, "tags": ["kv_cache"]}
        wake_up(setting)
        setting.assert_serves(setting.engine, setting.folders["b"], RECIPE)
        assert setting.program.status(setting.engine)["state"] == "serving"
        setting.reload("--model", setting.folders["a"], status=0)
        setting.versions["a"] = setting.program.status(setting.engine)["version"]
        setting.assert_serving_a()
    after = setting.program.status(setting.engine)["ranks"]
    assert [rank["buffers_digest"] for rank in after] == [rank["buffers_digest"] for rank in before]


def test_a_publisher_fills_it_and_a_part_of_a_version_does_not(setting):
    setting.serve()
    publisher = setting.publish()
    sleep(setting, "--level", 2)
    done = setting.reload("--publisher", publisher.endpoint, "--partial")
    assert not done["ok"] and "whole version" in done["error"]["message"]
    wake_up(setting)
    assert "torn since it slept at level 2" in refusal(setting, "generate", "--tokens", "1,2")
    setting.assert_takes_b(publisher)


def test_what_is_kept_is_served_again_without_the_staged_copy(setting):
    setting.serve()
    setting.reload("--model", setting.folders["a"], status=0)
    assert held(setting.engine, "staging") > 0
    weights = held(setting.engine, "weights")
    done = sleep(setting)
    assert done["given_back"] > 0 and held(setting.engine, "staging") == 0 and held(setting.engine, "weights") == weights
    assert setting.program.status(setting.engine)["version"] == setting.versions["a"]
    assert "asleep" in refusal(setting, "generate", "--tokens", "1,2")
    done = setting.reload("--model", setting.folders["b"])  # which would overwrite what is kept
    assert not done["ok"] and "asleep" in done["error"]["message"]
    wake_up(setting)
    wake_up(setting)
    setting.assert_serving_a()
    setting.assert_takes_b(setting.publish())


def test_each_tag_sleeps_and_wakes_up_alone(setting):
    setting.serve()
    sleep(setting, "--tags", "kv_cache")
    sleep(setting, "--tags", "weights")
    assert setting.program.status(setting.engine)["asleep"] == {"level": 1, "tags": ["kv_cache", "weights"]}
    wake_up(setting, "--tags", "weights")
    assert "asleep (kv_cache)" in refusal(setting, "generate", "--tokens", "1,2")
    wake_up(setting, "--tags", "kv_cache")
    setting.assert_serving_a()


def test_sequences_under_way_finish_or_are_aborted_before_it_sleeps(setting):
    setting.serve(tp=1)
    asking = setting.program.start("generate", "--engine", setting.engine.endpoint, "--tokens", "3,11,4", "--max-new", 200)
    sleep(setting, "--pause-mode", "abort")
    answer = setting.program.finish(asking, status=None)  # it may not have begun
    assert answer.json["finish"] in ("aborted", "length") if answer.status == 0 else "asleep" in answer.json["error"]["message"]
    wake_up(setting)
    setting.assert_serving_a()


def test_an_engine_that_cannot_wake_up_sleeps_on(setting):
    setting.serve(failpoints="rank1:wake=throw")
    setting.reload("--model", setting.folders["a"], status=0)
    sleep(setting, "--level", 2)
    assert "rank 1" in wake_up(setting, status=1)["error"]["message"]
    assert held(setting.engine, "weights") == held(setting.engine, "staging") == 0
    assert setting.program.status(setting.engine)["state"] == "asleep"
    assert "asleep" in refusal(setting, "generate", "--tokens", "1,2")
    setting.reload("--model", setting.folders["b"], status=0)
    wake_up(setting)
    setting.assert_serves(setting.engine, setting.folders["b"], RECIPE)


def test_a_rank_that_dies_asleep_is_put_to_sleep_again(setting):
    setting.serve()
    setting.reload("--model", setting.folders["a"], status=0)
    sleep(setting, "--level", 2)
    os.kill(setting.program.status(setting.engine)["pids"][1], 9)
    assert "asleep" in refusal(setting, "verify", "--model", setting.folders["a"])  # a call that finds it dead
    assert setting.program.status(setting.engine)["state"] == "asleep"
    assert held(setting.engine, "weights") == held(setting.engine, "staging") == 0
    setting.reload("--model", setting.folders["a"], status=0)
    wake_up(setting)
    setting.assert_serves(setting.engine, setting.folders["a"], RECIPE)
    assert setting.program.generate(setting.engine, PROMPT, "--max-new", 6)["tokens"] == setting.answer_of_a


def test_what_is_no_level_or_tag_is_refused(setting):
    setting.serve(tp=1)
    with pytest.raises(ProgramFailed, match="--level"):
        sleep(setting, "--level", 3)
    with pytest.raises(ProgramFailed, match="--tags"):
        sleep(setting, "--tags", "weights,kv")

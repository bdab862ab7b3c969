"""The commit policies `undo` and `in_place`, which write each layer over the live weights as it arrives: they serve what
a staged commit serves, and when something breaks in the middle, on any rank, `undo` serves the old version again, byte
for byte, and `in_place` is torn once anything is written, refuses to answer, and is healed by the next whole version."""

import pytest

from reload_setting import NAN_IN, RECIPE, fired, put_nan, spoiled, struck_mid_transfer

POLICIES = ("undo", "in_place")

WAYS = {
    "a snapshot over shm": ("--mode", "snapshot", "shm"),
    "a snapshot over zmq": ("--mode", "snapshot", "zmq"),
    "a stream": ("--mode", "stream", "zmq"),
    "a stream in disorder": ("--mode", "stream", "--order", "shuffled:5", "zmq"),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_way_in_serves_the_bytes_of_a_cold_load(policy, setting):
    setting.serve(policy)
    assert setting.program.status(setting.engine)["commit"] == policy
    versions = {"a": setting.folders["a"], "b": setting.folders["b"]}
    letter = "a"
    for way, (*publishing, channel) in WAYS.items():
        letter = "b" if letter == "a" else "a"
        publisher = setting.publish(*publishing, folder=versions[letter])
        done = setting.reload("--publisher", publisher.endpoint, "--channel", channel, status=0)
        assert done["report"]["bytes"] == done["report"]["bytes_total"] > 0, way
        setting.assert_serves(setting.engine, versions[letter], RECIPE)
    done = setting.reload("--model", versions["b"], status=0)
    setting.assert_serves(setting.engine, versions["b"], RECIPE)
    setting.reload(status=0)
    assert setting.answer()["spans"][0]["version"] == done["version"]


# What breaks after the first write: the embedding, which comes first, is 10 of a rank's 56 chunks. All of a version has
# arrived where `whole`.
FAULTS = {
    "a rank killed between two writes": ("rank1:commit.copy=kill@7", False, ("rank 1",)),
    "an error between two writes": ("rank1:commit.copy=throw@7", False, ("rank 1", "commit.copy")),
    "a corrupt chunk in the middle": ("rank1:receive.chunk=corrupt@30", False, ("rank 1", "digest")),
    "a rank killed while it receives": ("rank0:receive.chunk=kill@30", False, ("rank 0",)),
    "an error while quantizing": ("rank1:quantize=throw@9", False, ("rank 1", "quantize")),
    "an error when everything is written": ("rank1:verify=throw", True, ("rank 1", "verify")),
}


def fail(setting, policy, failpoint, *publishing):
    setting.serve(policy, failpoints=failpoint)
    publisher = setting.publish(*publishing)
    done = setting.reload("--publisher", publisher.endpoint, "--channel", "zmq")
    assert fired(setting.engine, failpoint.split(":")[1].partition("=")[0])
    return publisher, done


@pytest.mark.parametrize("fault", FAULTS)
def test_undo_rolls_all_ranks_back(fault, setting):
    failpoint, whole, words = FAULTS[fault]
    _, done = fail(setting, "undo", failpoint)
    assert struck_mid_transfer(done["report"]) or whole
    setting.assert_failed_and_still_serving_a(done, *words)
    setting.assert_takes_b()


@pytest.mark.parametrize("fault", FAULTS)
def test_in_place_is_torn_until_a_whole_version_lands(fault, setting):
    failpoint, whole, words = FAULTS[fault]
    publisher, done = fail(setting, "in_place", failpoint)
    assert struck_mid_transfer(done["report"]) or whole
    setting.assert_failed(done, *words)
    setting.assert_torn(done, publisher.version)
    setting.assert_takes_b()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("action", ["throw", "kill"])
def test_a_failure_before_the_first_write_leaves_the_old_version(action, policy, setting):
    _, done = fail(setting, policy, f"rank1:commit.prepare={action}")
    setting.assert_failed_and_still_serving_a(done, "rank 1")
    setting.assert_takes_b()


def test_a_rank_killed_while_it_rolls_back_begins_again(setting):
    _, done = fail(setting, "undo", "rank1:commit.copy=throw@11,rank0:commit.undo=kill@3")
    assert fired(setting.engine, "commit.undo")
    setting.assert_failed_and_still_serving_a(done, "commit.copy")
    setting.assert_takes_b()


@pytest.mark.parametrize("mode", ["snapshot", "stream"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_publisher_is_killed_midway(policy, mode, setting):
    """Two ranks ask for 16 chunks each before they have got any: by the 80th request one of them has got 24."""
    setting.serve(policy)
    publisher = setting.publish("--mode", mode, failpoints="publisher:serve.chunk=kill@80")
    done = setting.reload("--publisher", publisher.endpoint, "--channel", "zmq")
    assert fired(publisher, "serve.chunk") and struck_mid_transfer(done["report"])
    if policy == "undo":
        setting.assert_failed_and_still_serving_a(done, publisher.endpoint)
    else:
        setting.assert_failed(done, publisher.endpoint)
        setting.assert_torn(done, publisher.version)
    setting.assert_takes_b(setting.publish())


def test_a_torn_engine_is_healed_by_any_version_and_not_by_one_that_fails(setting):
    publisher, done = fail(setting, "in_place", "rank1:commit.copy=kill@7")
    setting.assert_torn(done, publisher.version)
    nowhere = setting.reload("--publisher", "tcp://127.0.0.1:9", "--timeout", 5)
    setting.assert_torn(nowhere, publisher.version)
    healed = setting.reload(status=0)  # the checkpoint that it came from
    assert healed["version"] == setting.versions["a"]
    setting.assert_serving_a()
    setting.assert_takes_b()


def test_sequences_under_way_end_as_aborted_when_the_engine_is_torn(setting):
    setting.serve("in_place", failpoints="rank1:commit.copy=kill@7")
    publisher = setting.publish()
    asking = setting.program.start("generate", "--engine", setting.engine.endpoint, "--tokens", "3,11,4", "--max-new",
                                   24, "--repeat", 2000)
    done = setting.reload("--publisher", publisher.endpoint, "--pause-mode", "keep")
    setting.assert_torn(done, publisher.version)
    refused = setting.program.finish(asking, status=1)
    assert "torn between" in refused.json["error"]["message"]
    setting.assert_takes_b()


def test_a_nan_in_the_middle_is_written_nowhere(setting, tmp_path):
    setting.serve("undo")
    done = setting.reload("--model", spoiled(setting.folders["b"], tmp_path / "nan", put_nan))
    setting.assert_failed_and_still_serving_a(done, NAN_IN)
    setting.assert_takes_b(setting.publish())

"""Whatever breaks while an adapter is loaded: its name, its version and its answers stay those of before, on every rank,
and the next load succeeds. And adapters outlive ranks."""

import os
import signal

import pytest
import torch

import adapters
import program as layercast_program
from adapter_setting import AdapterSetting, only
from reload_setting import fired


@pytest.fixture
def setting(program, start, checkpoint, checkpoint_cache):
    kept = adapters.Kept(checkpoint_cache)
    return AdapterSetting(program, start, kept, kept.base(checkpoint("llama", "a")))


def served(setting, *words, version=0, **how):
    """An engine with version 0 of `policy`, and what must stay: its list and its answer."""
    setting.serve("--tp", 2, *words, **how)
    setting.load("policy", version)
    answer = setting.answer()
    setting.assert_is(answer, version)
    return setting.list(), answer


def assert_unchanged(setting, before):
    listed, answer = before
    assert setting.list() == listed
    assert setting.answer() == answer
    assert setting.answer(None)["finish"] == "length"  # the base goes on as well
    assert setting.program.status(setting.engine)["torn"] is None


def disarm(setting, failpoint, engine=None):
    """Each load arms a rank's failpoints anew, but a rank that was started anew has none."""
    engine = engine or setting.engine
    role, _, rest = failpoint.partition(":")
    if not role.startswith("rank") or "=kill" in rest:
        return
    pids = setting.program.status(engine)["pids"]
    os.kill(pids[int(role.removeprefix("rank"))], signal.SIGKILL)
    layercast_program.wait_until(lambda: setting.program.run(*setting.asking("policy", engine=engine), status=None).status == 0, 20,
                                 "it never answered again")
    assert setting.program.status(engine)["pids"] != pids


def assert_takes(setting, version, old=0):
    setting.load("policy", version)
    setting.assert_is(setting.answer(), version, others=[old])
    (listed,) = setting.list()
    assert listed["state"] == "served" and listed["uses"] == 0
    assert setting.is_whole(version)


IN_A_FILL = {
    "a corrupted chunk": ("rank1:receive.chunk=corrupt", "digest"),
    "a rank killed while receiving": ("rank1:receive.chunk=kill", "rank 1"),
    "a rank killed while buffering": ("rank1:layer_buffer=kill@5", "rank 1"),
    "an error before the first byte": ("rank1:adapter.fill=throw@1", "adapter.fill"),
    "a rank killed before the first byte": ("rank0:adapter.fill=kill@1", "rank 0"),
    "an error while buffering": ("rank0:layer_buffer=throw@5", "layer_buffer"),
    "an error while materializing": ("rank1:materialize=throw@4", "rank 1"),
    "a rank killed while quantizing": ("rank1:quantize=kill@4", "rank 1"),
    "an error while verifying": ("rank1:verify=throw", "verify"),
    "a rank killed before the slot is written": ("rank1:commit.prepare=kill", "rank 1"),
    "a rank killed while the slot is written": ("rank1:commit.copy=kill@3", "rank 1"),
    "an error while the slot is written": ("rank0:commit.copy=throw@3", "commit.copy"),
    "an error before the switch": ("engine:adapter.flip=throw@1", "adapter.flip"),  # the first is that of the start
}


@pytest.mark.parametrize("fault", IN_A_FILL)
def test_a_fill_that_fails_changes_nothing(fault, setting):
    failpoint, said = IN_A_FILL[fault]
    name = failpoint.partition(":")[2].partition("=")[0]
    # Version 0 is there from the start: what an engine loads at its start passes by no failpoint.
    setting.serve("--tp", 2, "--chunk-bytes", 4096, "--adapter", f"policy={setting.folder(0)}", failpoints=failpoint)
    answer = setting.answer()
    setting.assert_is(answer, 0)
    before = setting.list(), answer
    # Snapshots go straight to staging: what arrives out of order passes through every stage.
    stages = ("--mode", "stream") if name == "materialize" else ()
    publisher = setting.publish(1, 1, "--channel", "zmq", *stages)
    done = setting.load_from("--publisher", publisher.endpoint, status=None)
    assert fired(setting.engine, name), done
    assert not done["ok"] and said in done["error"]["message"], done
    assert done["version"] == done["previous"] == before[0][0]["version"]
    assert_unchanged(setting, before)
    disarm(setting, failpoint)
    assert_unchanged(setting, before)
    done = setting.load_from("--publisher", publisher.endpoint)
    assert done["version"] == publisher.version
    setting.assert_is(setting.answer(), 1, others=[0])
    assert_takes(setting, 2, old=1)


@pytest.mark.parametrize("channel, failpoint", [("zmq", "publisher:serve.chunk=kill@2"), ("zmq", "publisher:answer.hello=kill"),
                                                ("shm", "publisher:send.chunk=corrupt"), ("zmq", "publisher:send.chunk=corrupt")])
def test_a_publisher_that_fails_changes_nothing(channel, failpoint, setting):
    before = served(setting, "--chunk-bytes", 4096)
    publisher = setting.publish(1, 1, "--channel", channel, failpoints=failpoint)
    done = setting.load_from("--publisher", publisher.endpoint, "--timeout", 60, status=1)
    assert fired(publisher, failpoint.partition(":")[2].partition("=")[0])
    assert done["version"] == before[0][0]["version"] and done["error"]["message"]
    assert_unchanged(setting, before)
    assert_takes(setting, 1)


def test_a_publisher_that_is_not_there_changes_nothing(setting):
    before = served(setting)
    publisher = setting.publish(1, 1)
    publisher.kill()
    done = setting.load_from("--publisher", publisher.endpoint, "--timeout", 20, status=1)
    assert publisher.endpoint in done["error"]["message"]
    assert_unchanged(setting, before)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_none_are_refused_by_name(value, setting, tmp_path):
    before = served(setting)
    spoiled = adapters.make(setting.base, tmp_path / "spoiled", "query_value")
    name = sorted(adapters.read(spoiled))[3]

    def spoil(tensors):
        tensors[name][1, 2] = value
        return tensors

    adapters.edit(spoiled, spoil)
    done = setting.load_from("--path", spoiled, status=1)
    assert name in done["error"]["message"] and "[1, 2]" in done["error"]["message"]
    error = setting.program.refused("publish", "--adapter", f"policy={spoiled}")
    assert name in error["message"] and "[1, 2]" in error["message"]
    assert_unchanged(setting, before)


@pytest.mark.parametrize("rank", [0, 1])
def test_adapters_outlive_a_rank(rank, setting):
    """Slots are in memory that outlives the process."""
    before = served(setting)
    setting.load("other", 1)
    before = setting.list(), before[1]
    os.kill(setting.engine.pids[rank], signal.SIGKILL)
    layercast_program.wait_until(lambda: setting.program.run(*setting.asking("policy"), status=None).status == 0, 20,
                                 "it never answered again")
    assert setting.program.status(setting.engine)["pids"] != setting.engine.pids
    assert_unchanged(setting, before)
    setting.assert_is(setting.answer("other"), 1, others=[0])
    assert setting.is_whole(0)
    setting.load("policy", 2)
    setting.assert_is(setting.answer(), 2, others=[0])


@pytest.mark.parametrize("skip", [0, 1], ids=["on the way out", "on the way in"])
@pytest.mark.parametrize("fault", ["rank1:adapter.move=kill", "rank0:adapter.move=throw", "rank1:adapter.move=corrupt"])
def test_a_promotion_that_fails_leaves_every_adapter_as_it_was(fault, skip, setting):
    """One slot, and two adapters: the one that has the slot has to leave before the other comes."""
    # The first move is that of the start, when the second adapter is loaded.
    words = [word for version, name in enumerate(("one", "two")) for word in ("--adapter", f"{name}={setting.folder(version)}")]
    setting.serve("--tp", 2, "--host-adapters", 1, *words, slots=1, failpoints=f"{fault}@{1 + skip}")
    before, answer = [{**entry, "tier": None, "slot": None, "place": None} for entry in setting.list()], setting.answer("two")
    setting.assert_is(answer, 1, others=[0])
    error = setting.program.run(*setting.asking("one"), status=1).json["error"]
    assert fired(setting.engine, "adapter.move")
    assert "adapter 'one'" in error["message"] and ("adapter 'two' could not leave slot 0" in error["message"]) == (skip == 0)
    assert f"rank {fault[4]}" in error["message"], error
    assert ("digest" in error["message"]) == ("corrupt" in fault)
    assert [{**entry, "tier": None, "slot": None, "place": None} for entry in setting.list()] == before
    assert setting.answer(None)["finish"] == "length"
    for version, name in enumerate(("one", "two")):
        setting.assert_is(setting.answer(name), version, others=[1 - version])
        assert setting.is_whole(version, name)
    assert setting.answer("two") == answer


@pytest.mark.parametrize("rank", [0, 1])
def test_host_copies_outlive_a_rank(rank, setting):
    setting.serve("--tp", 2, "--host-adapters", 2, slots=1)
    for version, name in enumerate("abc"):
        setting.load(name, version)
    before = setting.list()
    os.kill(setting.engine.pids[rank], signal.SIGKILL)
    layercast_program.wait_until(lambda: setting.program.run(*setting.asking("c"), status=None).status == 0, 20, "it never answered again")
    assert setting.program.status(setting.engine)["pids"] != setting.engine.pids
    assert setting.list() == before
    for version, name in enumerate("abc"):
        setting.assert_is(setting.answer(name), version)
        assert setting.is_whole(version, name)


def test_a_rank_that_dies_below_a_sequence_ends_no_adapter(setting):
    before = served(setting)
    started = setting.program.start(*setting.asking("policy", new=480))
    layercast_program.wait_until(lambda: setting.uses("policy") > 0 or started[1].poll() is not None, 20, "it never began")
    os.kill(setting.engine.pids[1], signal.SIGKILL)
    done = setting.program.finish(started, status=None)
    if done.status == 0:
        whole = setting.answer(new=480)
        got = done.json
        assert got["tokens"] == whole["tokens"][: len(got["tokens"])]
    assert_unchanged(setting, before)
    assert setting.uses("policy") == 0


@pytest.mark.parametrize("fault", ["rank1:commit.copy=kill@3", "rank1:verify=throw", "engine:adapter.flip=throw@1"])
def test_one_of_two_engines_that_fails_lets_neither_switch(fault, setting):
    words = ("--tp", 2, "--adapter", f"policy={setting.folder(0)}")
    engines = [setting.serve(*words), setting.serve(*words, failpoints=fault)]
    lists = [setting.list(engine) for engine in engines]
    endpoints = ",".join(engine.endpoint for engine in engines)
    publisher = setting.publish(1, 1)
    command = ("adapter", "load", "--engine", endpoints, "--name", "policy", "--publisher", publisher.endpoint, "--all-or-none")
    done = setting.program.run(*command, status=1).json["outcomes"]
    assert [outcome["ok"] for outcome in done] == [False, False], done
    assert fired(engines[1], fault.partition(":")[2].partition("=")[0])
    for engine, listed in zip(engines, lists):
        assert setting.list(engine) == listed
        setting.assert_is(setting.answer(engine=engine), 0, others=[1])
    disarm(setting, fault, engines[1])
    done = setting.program.run(*command).json["outcomes"]
    only(outcome["version"] for outcome in done)
    for engine in engines:
        setting.assert_is(setting.answer(engine=engine), 1, others=[0])


def test_overflow_is_the_sequences_error(setting, tmp_path):
    """Factors so large that logits are infinite: that prompt's command fails, naming the token; the base and others go on."""
    before = served(setting)
    large = adapters.make(setting.base, tmp_path / "large", "ends")
    adapters.edit(large, lambda tensors: {name: torch.full_like(tensor, 3e38) if "lora_B" in name or "embedding_B" in name else tensor
                                          for name, tensor in tensors.items()})
    setting.load_from("--path", large, name="large")
    error = setting.program.run(*setting.asking("large"), status=1).json["error"]
    assert error["code"] == "corrupt" and "token" in error["message"]
    setting.call("unload", "large")
    listed = [entry for entry in setting.list() if entry["state"] != "gone"]
    assert listed == before[0] and setting.answer() == before[1]

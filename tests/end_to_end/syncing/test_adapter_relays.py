"""Adapters on their way through engines that relay: the publisher sends one copy, and each slot holds what it would hold
if all of it had come from the publisher."""

import pytest

import adapters
from adapter_setting import AdapterSetting
from program import wait_until

TP = 2
RELAYS = ("--relay", "tcp://127.0.0.1:0")


@pytest.fixture
def setting(program, start, checkpoint, checkpoint_cache):
    kept = adapters.Kept(checkpoint_cache)
    return AdapterSetting(program, start, kept, kept.base(checkpoint("llama", "a")))


def engine(setting, *words, failpoints=""):
    return setting.serve("--tp", TP, "--chunk-bytes", 4_096, *words, failpoints=failpoints)


def publish(setting, *words, **how):
    return setting.publish(0, 1, "--channel", "zmq", *words, **how)  # which copies, as between hosts


def relayed(report):
    """The bytes that came, and those of them that came from other engines."""
    [share] = report["publishers"]
    assert share["bytes"] == report["bytes"] > 0
    return share["bytes"], share["relayed_bytes"]


def assert_serves(setting, served, version=0):
    setting.engine = served
    assert setting.is_whole(version)
    setting.assert_is(setting.answer(), version)


def test_engines_that_load_together_cost_the_publisher_one_copy(setting):
    engines = [engine(setting, *RELAYS) for _ in range(3)]
    endpoints = ",".join(each.endpoint for each in engines)
    for version in (0, 1):  # whoever relays one version takes the next one too
        publisher = setting.publish(version, version, "--channel", "zmq")
        command = ("adapter", "load", "--engine", endpoints, "--name", "policy", "--publisher", publisher.endpoint)
        outcomes = setting.program.run(*command).json["outcomes"]
        shares = [relayed(outcome["report"]) for outcome in outcomes]
        assert sum(all_bytes - from_engines for all_bytes, from_engines in shares) == shares[0][0]
        for each in engines:
            assert_serves(setting, each, version)


def test_a_base_and_its_adapters_travel_by_one_relay(setting, checkpoint):
    base = setting.kept.base(checkpoint("llama", "b"))
    below = AdapterSetting(setting.program, setting.start, setting.kept, base)
    policy, critic = below.folder(0), below.folder(1)
    publisher = setting.start("publish", "--model", base, "--adapter", f"policy={policy}", "--adapter", f"critic={critic}",
                              "--channel", "zmq")
    words = ("--publisher", publisher.endpoint, "--adapters", "*")
    first, second = engine(setting, *RELAYS), engine(setting, *RELAYS)
    reports = [setting.program.reload(each, *words)["report"] for each in (first, second)]
    assert sorted(reports[0]["adapters"]) == sorted(reports[1]["adapters"]) == ["critic", "policy"]
    for of_first, of_second in zip(*([report, *report["adapters"].values()] for report in reports)):
        assert relayed(of_first) == (of_first["bytes"], 0)
        assert relayed(of_second) == (of_first["bytes"], of_first["bytes"])
    below.engine = second
    assert below.is_whole(0, "policy") and below.is_whole(1, "critic")
    below.assert_is(below.answer("policy"), 0, others=[1])
    below.assert_is(below.answer("critic"), 1, others=[0])
    assert setting.program.run("verify", "--engine", second.endpoint, "--model", base).json["equal"]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_relay_that_ends_in_the_middle_is_made_up_for_by_the_publisher(end, setting):
    relay, publisher = engine(setting, *RELAYS, failpoints=f"relay1:serve.chunk={end}@2"), publish(setting)
    setting.load_from("--publisher", publisher.endpoint)
    other = engine(setting, "--channel", "zmq")
    every_byte, from_engines = relayed(setting.load_from("--publisher", publisher.endpoint)["report"])
    wait_until(lambda: "failpoint serve.chunk fired" in relay.errors(), 20, "the relay did not end")
    assert 0 < from_engines < every_byte
    assert_serves(setting, other)


def test_a_relay_that_brings_other_bytes_is_named_and_left(setting):
    publisher = publish(setting)
    engine(setting, *RELAYS)
    setting.load_from("--publisher", publisher.endpoint)
    other = engine(setting, failpoints="rank1:receive.chunk=corrupt@2")
    [share] = setting.load_from("--publisher", publisher.endpoint)["report"]["publishers"]
    assert 0 < share["relayed_bytes"] < share["bytes"]
    wait_until(lambda: "has lost relay 'tcp://127.0.0.1:" in publisher.errors(), 20, "the publisher was not told")
    assert "digest expected" in other.errors()
    assert_serves(setting, other)


def test_a_load_is_one_session(setting):
    engine(setting)
    publisher = publish(setting, failpoints="publisher:answer.hello=throw@3")  # one from each of two ranks, and one more
    setting.load_from("--publisher", publisher.endpoint)
    assert "failpoint answer.hello fired" not in publisher.errors()
    refused = setting.load_from("--publisher", publisher.endpoint, status=1)
    assert "answer.hello" in refused["error"]["message"]


def test_an_engine_with_slots_relays_at_ports_of_its_own(setting):
    words = ("serve", "--model", setting.base, "--adapter-slots", 2, "--relay", "tcp://127.0.0.1:17999")
    assert "expected port 0 where there are adapter slots" in setting.program.run(*words, status=1).errors

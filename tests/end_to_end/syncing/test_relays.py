"""Engines that take a snapshot from each other: the publisher sends one copy, and each serves what it would serve if it
had taken all of it from the publisher."""

import pytest

from program import wait_until

RECIPE = "fp8_per_channel"
TP = 2


@pytest.fixture
def serve(start, checkpoint):
    """serve("--relay", ...) -> an engine; all of them ask for the same."""
    def serve(*arguments, **options):
        return start("serve", "--model", checkpoint("llama", "a"), "--tp", TP, "--quantization", RECIPE, "--chunk-bytes", 20_000,
                     *arguments, **options)

    return serve


@pytest.fixture
def publisher(start, checkpoint):
    # Over a channel that copies, as between hosts: one that maps the publisher's memory costs it nothing.
    return start("publish", "--model", checkpoint("llama", "b"), "--channel", "zmq")


def relaying(serve, **options):
    return serve("--relay", "tcp://127.0.0.1:0", **options)


def share_of(outcome):
    [share] = outcome["report"]["publishers"]
    assert share["bytes"] == outcome["report"]["bytes"]
    return share


@pytest.mark.parametrize("channel", ["zmq", ""])
def test_a_later_engine_takes_all_of_it_from_an_earlier_one(channel, program, serve, publisher, checkpoint, assert_serves):
    earlier, later = relaying(serve), serve()
    forced = ["--channel", channel] if channel else []  # else shm from the relay, on one host
    assert share_of(program.reload(earlier, "--publisher", publisher.endpoint))["relayed_bytes"] == 0
    share = share_of(program.reload(later, "--publisher", publisher.endpoint, *forced))
    assert share["relayed_bytes"] == share["bytes"] > 0 and len(share["relays"]) == TP
    assert share["endpoint"] == publisher.endpoint
    said = program.text("reload", "--engine", later.endpoint, "--publisher", publisher.endpoint, *forced)
    assert f"{share['bytes']} of them from other engines: tcp://127.0.0.1:" in said
    assert "snapshot" in program.text("status", "--publisher", publisher.endpoint)
    for engine in (earlier, later):
        assert_serves(engine, checkpoint("llama", "b"), RECIPE)


def test_engines_that_begin_together_cost_the_publisher_one_copy(program, start, serve, checkpoint, assert_serves):
    engines = [relaying(serve) for _ in range(3)]
    endpoints = ",".join(engine.endpoint for engine in engines)
    for letter in "ba":  # whoever relays one version takes the next one too
        publisher = start("publish", "--model", checkpoint("llama", letter), "--channel", "zmq")
        done = program.run("reload", "--engine", endpoints, "--publisher", publisher.endpoint).json
        shares = [share_of(outcome) for outcome in done["engines"]]
        assert sum(share["bytes"] - share["relayed_bytes"] for share in shares) == shares[0]["bytes"]
        for engine in engines:
            assert_serves(engine, checkpoint("llama", letter), RECIPE)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_relay_that_ends_in_the_middle_is_made_up_for_by_the_publisher(end, program, serve, publisher, checkpoint, assert_serves):
    relay = relaying(serve, failpoints=f"relay1:serve.chunk={end}@2")
    program.reload(relay, "--publisher", publisher.endpoint)
    engine = serve()
    share = share_of(program.reload(engine, "--publisher", publisher.endpoint, "--channel", "zmq"))
    wait_until(lambda: "failpoint serve.chunk fired" in relay.errors(), 20, "the relay did not end")
    assert 0 < share["relayed_bytes"] < share["bytes"]
    assert_serves(engine, checkpoint("llama", "b"), RECIPE)


def test_a_relay_must_say_where_others_reach_it(program, checkpoint):
    refused = program.run("serve", "--model", checkpoint("llama", "a"), "--relay", "tcp://0.0.0.0:0", "--insecure", status=1)
    assert "relay endpoint 'tcp://0.0.0.0:0': expected an address that other receivers reach" in refused.errors
    refused = program.run("serve", "--model", checkpoint("llama", "a"), "--relay", "tcp://10.0.0.1:0", status=1)
    assert "endpoint 'tcp://10.0.0.1:0' can be reached from other hosts" in refused.errors

"""A publisher and an engine on two hosts, as far as network namespaces make two of one: over a link that is slow, that
delays and loses, and that is cut one way while a version is on it."""

import os
import signal
import subprocess

import pytest

import endless
import network as networks
import program as layercast_program
from reload_setting import fired, struck_mid_transfer
from trained_steps import after_a_step

CHANNELS = ("zmq", "ucx")


@pytest.fixture(scope="module")
def network():
    laid = networks.Network()
    yield laid
    laid.close()


@pytest.fixture
def program(program, network):
    """On the engine's host."""
    return program.on(network.engine)


@pytest.fixture
def start(program, network):
    """Engines on theirs, publishers on the other."""
    on_the_other = program.on(network.publisher)
    running = []

    def start(subcommand, *arguments, failpoints=""):
        if subcommand == "publish":
            where = ("--bind", f"tcp://{networks.PUBLISHER}:0", "--insecure")
            running.append(on_the_other.daemon(subcommand, *arguments, *where, failpoints=failpoints))
        else:
            running.append(program.daemon(subcommand, *arguments, failpoints=failpoints))
        return running[-1]

    yield start
    for daemon in running:
        daemon.kill()


def test_two_hosts_share_no_memory(setting, program):
    setting.serve()
    publisher = setting.publish()
    probe = program.run("probe", "--publisher", publisher.endpoint).json
    shm = next(channel for channel in probe["channels"] if channel["name"] == "shm")
    assert not shm["usable"] and shm["reason"] == "in another network namespace"
    done = setting.reload("--publisher", publisher.endpoint, "--channel", "shm", status=1)
    setting.assert_failed_and_still_serving_a(done, publisher.endpoint, "shm: in another network namespace")
    assert done["error"]["code"] == "unsupported"


@pytest.mark.parametrize("channel", CHANNELS)
def test_processes_of_the_conformance_suite_on_two_hosts(channel, network):
    environment = {**os.environ, "LAYERCAST_PEER_WITHIN": " ".join(network.publisher.inside),
                   "LAYERCAST_PEER_HOST": networks.PUBLISHER, "LAYERCAST_OWN_HOST": networks.ENGINE}
    suite = [os.environ["LAYERCAST_CONFORMANCE"], f"--gtest_filter=*/ChannelProcess.*/{channel}"]
    done = subprocess.run([*network.engine.inside, *suite], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "[  PASSED  ] 6 tests." in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_slow_link(channel, setting, network):
    """So slow that not even what it is measured by arrives in the time for that."""
    limit = 4_000_000
    setting.serve()
    publisher = setting.publish()
    with network.limited(limit):
        report = setting.assert_takes_b(publisher, "--channel", channel)
        passed = network.limited_bytes()
    used = report["channel"]
    assert (used["name"], used["lane"]) == (channel, "tcp/eth0" if channel == "ucx" else "")
    assert 0 < used["probed_gb_per_s"] * 1e9 < limit and used["gb_per_s"] > 0
    assert passed > report["bytes"]


@pytest.mark.parametrize("channel", CHANNELS)
def test_over_a_slow_link_an_engine_that_keeps_its_source_takes_what_changed(channel, program, start, checkpoint, network,
                                                                             tmp_path, assert_serves):
    """By itself, because it was measured to take less time."""
    before, after = checkpoint("qwen3", "a"), after_a_step(checkpoint("qwen3", "a"), tmp_path / "after", 1)
    engine = start("serve", "--model", before, "--quantization", "none", "--keep-source")
    publisher = start("publish", "--model", before, "--lineage", "run", "--step", 1, "--keep", 2, "--allow-path", tmp_path)
    with network.limited(4_000_000):
        dense = program.reload(engine, "--publisher", publisher.endpoint, "--channel", channel)["report"]
        program.run("publish", "--to", publisher.endpoint, "--model", after, "--step", 2)
        passed = network.limited_bytes()
        report = program.reload(engine, "--publisher", publisher.endpoint, "--channel", channel)["report"]
        passed = network.limited_bytes() - passed
    delta = report["delta"]
    assert not dense["delta"]["taken"] and delta["taken"], delta
    assert delta["estimated_delta_ms"] < delta["estimated_dense_ms"] / 5
    assert delta["encoded_bytes"] < report["bytes"] / 20
    assert passed < report["bytes"] / 2  # digests, manifest and all
    assert_serves(engine, after, "none")


# A chunk of a MiB takes longer on it than the silence that anybody bears.
CRAWLING = 150_000


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_link_on_which_one_chunk_takes_longer_than_silence_is_borne(channel, setting, network):
    setting.serve(tp=1, chunk_bytes=1 << 20)
    publisher = setting.publish()
    with network.limited(CRAWLING):
        report = setting.assert_takes_b(publisher, "--channel", channel)
        passed = network.limited_bytes()
    assert report["channel"]["probed_gb_per_s"] > 0
    assert passed > report["bytes"] > 1 << 20


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_publisher_that_freezes_behind_such_a_link_is_noticed(channel, setting, network):
    """What its kernel still sends by itself is soon through."""
    setting.serve(tp=1, chunk_bytes=1 << 20)
    publisher = setting.publish()
    with network.limited(CRAWLING):
        waiting = setting.program.start("reload", "--engine", setting.engine.endpoint, "--publisher", publisher.endpoint,
                                        "--channel", channel)
        # More than is measured by, in the five seconds that there are for that.
        layercast_program.wait_until(lambda: network.limited_bytes() > 8 * CRAWLING, 30, "nothing of the version came")
        publisher.signal(signal.SIGSTOP)
        done = setting.program.finish(waiting, status=1).json["engines"][0]
        publisher.signal(signal.SIGCONT)
    assert done["error"]["code"] == "unavailable" and "silent for" in done["error"]["message"]
    setting.assert_failed_and_still_serving_a(done, publisher.endpoint)


def test_zmq_tells_of_a_client_whose_host_has_vanished(program, start, network, checkpoint, tmp_path):
    """Nobody tells of its end: the engine's kernel asks its own for half a minute."""
    engine = start("serve", "--model", endless.endless_copy(checkpoint("qwen3", "a"), tmp_path / "endless"),
                   "--bind", f"tcp://{networks.ENGINE}:0", "--insecure")
    asked = endless.generate(program.on(network.publisher), engine)
    with network.cut("publisher"), network.cut("engine"):
        asked[1].kill()
        program.finish(asked, status=-signal.SIGKILL)
        assert program.reload(engine, "--pause-mode", "wait", "--timeout", 58)["ok"]


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_link_that_delays_and_loses(channel, setting, network):
    setting.serve()
    publisher = setting.publish()
    with network.delayed(seconds=0.01, lost=200, seed=5) as packets:
        setting.assert_takes_b(publisher, "--channel", channel)
        brought, lost = packets()
    assert brought > 100 and lost > 0


def reload_that_is_cut(setting, network, channel, origin, but_control=False):
    """The link is cut while the publisher stands still in the midst of a version, and healed when the reload has ended.
    For engines of one rank, which asks for 16 chunks before it has got any: another may not have got as far, and its
    patience with what it begins is another."""
    publisher = setting.publish(failpoints="publisher:serve.chunk=stop@24")
    waiting = setting.program.start("reload", "--engine", setting.engine.endpoint, "--publisher", publisher.endpoint,
                                    "--channel", channel)
    layercast_program.wait_until(lambda: fired(publisher, "serve.chunk"), 20, "the publisher did not stop")
    with network.cut(origin, but_endpoint=publisher.endpoint if but_control else None):
        publisher.signal(signal.SIGCONT)
        assert setting.answer()["tokens"] == setting.answer_of_a
        done = setting.program.finish(waiting, status=1).json["engines"][0]
    assert struck_mid_transfer(done["report"])
    # Of silence, or TCP's own patience: not of the command's deadline.
    assert done["error"]["code"] == "unavailable"
    setting.assert_failed_and_still_serving_a(done, publisher.endpoint)
    return done


@pytest.mark.parametrize("origin", ["publisher", "engine"])
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_link_that_is_cut_one_way(channel, origin, setting, network):
    setting.serve(tp=1)
    reload_that_is_cut(setting, network, channel, origin)
    setting.assert_takes_b(setting.publisher, "--channel", channel)


@pytest.mark.parametrize("channel", CHANNELS)
def test_data_that_is_cut_while_the_publisher_answers(channel, setting, network):
    setting.serve(tp=1)
    done = reload_that_is_cut(setting, network, channel, "publisher", but_control=True)
    assert f"{channel}: publisher at" in done["error"]["message"]
    setting.assert_takes_b(setting.publisher, "--channel", channel)

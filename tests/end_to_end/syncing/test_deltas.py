"""Engines that keep their source take what changed alone; what they then serve is what a cold load makes of the same weights."""

import pytest

from trained_steps import after_a_step

RECIPE = "fp8_per_channel"


def words(text):
    """Without line breaks."""
    return " ".join(text.split())


@pytest.fixture
def steps(checkpoint, tmp_path):
    """Versions 1, 2, ... of a run."""
    folders = [checkpoint("llama", "a")]
    for number in (2, 3, 4):
        folders.append(after_a_step(folders[-1], tmp_path / f"step-{number}", number))
    return folders


@pytest.fixture
def publish(program, start, tmp_path):
    """publish(folder, step): the first starts the publisher, which keeps two."""
    publisher = []

    def publish(folder, step):
        if not publisher:
            publisher.append(start("publish", "--model", folder, "--lineage", "run", "--step", step, "--keep", 2,
                                   "--allow-path", tmp_path))
        else:
            program.run("publish", "--to", publisher[0].endpoint, "--model", folder, "--step", step)
        return publisher[0]

    return publish


def test_an_engine_takes_what_changed_and_serves_what_a_cold_load_makes(program, start, publish, steps, assert_serves):
    engine = start("serve", "--model", steps[0], "--tp", 2, "--quantization", RECIPE, "--keep-source", "--delta", "always",
                   "--channel", "zmq")
    publisher = publish(steps[0], 1)
    first = program.reload(engine, "--publisher", publisher.endpoint)["report"]
    assert first["delta"]["taken"] is False and "nothing is kept yet" in first["delta"]["why"]
    for step in (2, 3):
        publish(steps[step - 1], step)
        report = program.reload(engine, "--publisher", publisher.endpoint)["report"]
        delta = report["delta"]
        assert delta["taken"] and delta["base"]["step"] == step - 1, delta
        assert delta["dense_bytes"] == report["bytes_total"] == report["bytes"]
        assert 0 < delta["encoded_bytes"] < report["bytes_total"] / 20
        assert report["publishers"][0]["bytes"] == delta["encoded_bytes"]
        assert delta["estimated_delta_ms"] > 0 and delta["estimated_dense_ms"] > 0 and delta["took_ms"] > 0
        assert program.status(engine)["last_report"]["delta"] == delta
        assert_serves(engine, steps[step - 1], RECIPE)
    said = words(program.text("status", "--engine", engine.endpoint))
    assert f"as a delta of run@2: {delta['encoded_bytes']} of {delta['dense_bytes']} bytes" in said
    said = words(program.text("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint))
    assert "as a delta of run@3: " in said


def test_without_its_base_at_the_publisher_an_engine_takes_all_bytes(program, start, publish, steps, assert_serves):
    engine = start("serve", "--model", steps[0], "--quantization", "none", "--keep-source", "--delta", "always",
                   "--channel", "zmq")
    publisher = publish(steps[0], 1)
    program.reload(engine, "--publisher", publisher.endpoint)
    for step in (2, 3):  # the first is evicted
        publish(steps[step - 1], step)
    delta = program.reload(engine, "--publisher", publisher.endpoint)["report"]["delta"]
    assert not delta["taken"] and "the publisher does not keep run@1" in delta["why"]
    assert "bytes, " in words(program.text("status", "--engine", engine.endpoint)).partition(" dense, ")[2]
    assert_serves(engine, steps[2], "none")

    publisher.stop()
    again = start("publish", "--model", steps[3], "--lineage", "run", "--step", 4)
    delta = program.reload(engine, "--publisher", again.endpoint)["report"]["delta"]
    assert not delta["taken"] and "the publisher does not keep run@3" in delta["why"]
    assert_serves(engine, steps[3], "none")


def test_a_reload_that_fails_leaves_what_is_kept(program, start, publish, steps, assert_serves):
    engine = start("serve", "--model", steps[0], "--quantization", RECIPE, "--keep-source", "--delta", "always", "--channel",
                   "zmq", failpoints="rank0:verify=throw@1")
    publisher = publish(steps[0], 1)
    program.reload(engine, "--publisher", publisher.endpoint)
    publish(steps[1], 2)
    failed = program.reload(engine, "--publisher", publisher.endpoint, status=1)
    assert "failpoint" in failed["error"]["message"] and failed["report"]["delta"]["taken"]
    assert_serves(engine, steps[0], RECIPE)
    delta = program.reload(engine, "--publisher", publisher.endpoint)["report"]["delta"]
    assert delta["taken"] and delta["base"]["step"] == 1
    assert_serves(engine, steps[1], RECIPE)


def test_an_engine_that_relays_keeps_no_source(program, checkpoint):
    refused = program.run("serve", "--model", checkpoint("llama", "a"), "--keep-source", "--relay", "tcp://127.0.0.1:0", status=2)
    assert "--keep-source: expected no --relay beside it" in str(refused)

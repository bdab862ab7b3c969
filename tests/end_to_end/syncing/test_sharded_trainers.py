"""Trainers whose ranks publish what each of them holds: however they are sharded, an engine serves, byte for byte, what
it serves of the checkpoint that the shards were made of."""

import os
import select
import subprocess
import sys

import pytest

import sharded_trainer

READY_SECONDS = 30
SHARD_SECONDS = 100
FAMILY = "mixtral"  # attention, experts, norms; odd numbers of rows and experts
ENGINES = {"one rank": ("none",), "two ranks": ("fp8_per_tensor", "--tp", 2),
           "whole experts": ("fp8_per_channel", "--tp", 2, "--expert-parallel")}


@pytest.fixture(scope="module")
def trainer(checkpoint, tmp_path_factory):
    """trainer(layout) -> the endpoints of its ranks' processes, of version b."""
    folder = tmp_path_factory.mktemp("shards")
    command = [sys.executable, sharded_trainer.__file__, checkpoint(FAMILY, "b"), folder]
    subprocess.run(command, check=True, timeout=SHARD_SECONDS)
    running = {}

    def start(layout):
        ranks = sharded_trainer.LAYOUTS[layout]
        if layout not in running:
            running[layout] = [publish(folder / layout / str(rank), rank, ranks) for rank in range(ranks)]
        return [endpoint for _, endpoint in running[layout]]

    yield start
    for processes in running.values():
        for process, _ in processes:
            process.kill()
            process.communicate()


def publish(folder, rank, ranks):
    command = [os.environ["LAYERCAST_PUBLISHER_DRIVER"], folder, "snapshot", "layer", f"{rank}/{ranks}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
    endpoint = process.stdout.readline().strip() if readable else ""
    assert endpoint.startswith("tcp://"), f"no endpoint; exit status {process.poll()}"
    return process, endpoint


def served_digests(report):
    return [rank["served_digest"] for rank in report["ranks"]]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_layout_is_served_as_the_checkpoint(engine, program, start, trainer, checkpoint, assert_serves):
    recipe, *arguments = ENGINES[engine]
    a, b = checkpoint(FAMILY, "a"), checkpoint(FAMILY, "b")
    engine = start("serve", "--model", a, "--quantization", recipe, "--chunk-bytes", 20_000, *arguments)
    of_a = served_digests(program.status(engine))
    of_one = program.reload(engine, "--publisher", start("publish", "--model", b).endpoint)["report"]
    assert served_digests(of_one) != of_a
    for number, layout in enumerate(sharded_trainer.LAYOUTS):
        assert served_digests(program.reload(engine, "--model", a)["report"]) == of_a
        endpoints = trainer(layout)
        channel = ("shm", "zmq")[number % 2]
        report = program.reload(engine, "--publisher", ",".join(endpoints), "--channel", channel)["report"]
        assert served_digests(report) == served_digests(of_one), layout
        assert report["bytes"] == report["bytes_total"] == of_one["bytes"], layout
        assert [share["endpoint"] for share in report["publishers"]] == endpoints
        assert {share["channel"] for share in report["publishers"]} == {channel}
        assert sum(share["bytes"] for share in report["publishers"]) == report["bytes"]
    if "--expert-parallel" not in arguments:  # tests/oracle/test_expert_parallel.py is about those
        assert_serves(engine, b, recipe)
    engine.stop()


def test_the_program_streams_rows_of_a_checkpoint(program, start, checkpoint):
    a, b = checkpoint(FAMILY, "a"), checkpoint(FAMILY, "b")
    engine = start("serve", "--model", a, "--quantization", "fp8_per_tensor", "--tp", 2)
    whole = start("publish", "--model", b, "--lineage", "run", "--step", 1)
    of_one = program.reload(engine, "--publisher", whole.endpoint)["report"]
    for step, order in enumerate(("layer", "checkpoint", "shuffled:3"), start=2):
        ranks = [start("publish", "--model", b, "--part", f"{rank}/3", "--mode", "stream", "--order", order,
                       "--lineage", "run", "--step", step) for rank in range(3)]
        program.reload(engine, "--model", a)
        report = program.reload(engine, "--publisher", ",".join(rank.endpoint for rank in ranks))["report"]
        assert served_digests(report) == served_digests(of_one), order
        assert report["bytes"] == report["bytes_total"] == of_one["bytes"]
        assert [share["endpoint"] for share in report["publishers"]] == [rank.endpoint for rank in ranks]
        for rank in ranks:
            rank.stop()
    ranks = [start("publish", "--model", b, "--part", f"{rank}/2", "--lineage", "run", "--step", 9,
                   *(["--mode", "stream"] if rank else [])) for rank in range(2)]
    mixed = program.reload(engine, "--publisher", ",".join(rank.endpoint for rank in ranks), status=1)
    assert "expected a stream or a snapshot of all publishers" in mixed["error"]["message"]
    assert program.run("verify", "--engine", engine.endpoint, "--model", b).json["equal"]
    engine.stop()


def test_the_program_publishes_rows_of_a_checkpoint(program, start, checkpoint):
    a, b = checkpoint(FAMILY, "a"), checkpoint(FAMILY, "b")
    engine = start("serve", "--model", a, "--quantization", "fp8_per_block")
    before = served_digests(program.status(engine))
    ranks = [start("publish", "--model", b, "--part", f"{rank}/3", "--lineage", "run", "--step", 7)
             for rank in range(3)]
    assert [rank.ready["part"] for rank in ranks] == [{"rank": rank, "ranks": 3} for rank in range(3)]
    assert program.run("status", "--publisher", ranks[1].endpoint).json["part"] == {"rank": 1, "ranks": 3}
    every = ",".join(rank.endpoint for rank in reversed(ranks))
    assert program.run("plan", "--model", a, "--publisher", every).json["problems"] == []

    alone = program.reload(engine, "--publisher", ranks[2].endpoint, status=1)
    assert "has part 2 of 3 of run@7: expected publishers of all of them" in alone["error"]["message"]
    ranks[0].kill()
    lost = program.reload(engine, "--publisher", every, "--timeout", 20, status=1)
    assert ranks[0].endpoint in lost["error"]["message"]
    assert served_digests(program.status(engine)) == before

    ranks[0] = start("publish", "--model", b, "--part", "0/3", "--lineage", "run", "--step", 7)
    every = ",".join(rank.endpoint for rank in ranks)
    done = program.reload(engine, "--publisher", every, "--version", "run@7")
    assert done["ok"] and done["version"]["step"] == 7
    assert program.run("verify", "--engine", engine.endpoint, "--model", b).json["equal"]
    engine.stop()


def test_parts_of_two_runs_under_one_name_are_not_mixed(program, start, checkpoint):
    a, b = checkpoint(FAMILY, "a"), checkpoint(FAMILY, "b")
    engine = start("serve", "--model", a)
    before = served_digests(program.status(engine))

    def publish_parts(folder, *run):
        return [start("publish", "--model", folder, "--part", f"{rank}/2", "--lineage", "run", "--step", 7, *run)
                for rank in range(2)]

    mine, other, unnamed = publish_parts(b, "--run", "job-7"), publish_parts(a, "--run", "job-8"), publish_parts(b)
    assert mine[0].ready["run"] == "job-7" and unnamed[0].ready["run"] is None
    assert program.run("status", "--publisher", mine[1].endpoint).json["run"] == "job-7"
    assert "run 'job-7'" in program.text("status", "--publisher", mine[1].endpoint)
    for first, second in ((mine[0], other[1]), (unnamed[0], mine[1])):
        both = f"{first.endpoint},{second.endpoint}"
        refused = program.reload(engine, "--publisher", both, status=1)
        message = refused["error"]["message"]
        assert refused["error"]["code"] == "failed_precondition" and refused["report"] is None
        assert all(daemon.endpoint in message for daemon in (first, second)) and "'job-7'" in message
        assert served_digests(program.status(engine)) == before
        assert program.refused("plan", "--model", a, "--publisher", both)["message"] in message

    def reload_text(parts):
        return program.text("reload", "--engine", engine.endpoint, "--publisher", ",".join(p.endpoint for p in parts))

    warning = "no publisher names its run"
    assert f"  warning: {warning}" in reload_text(unnamed)
    assert program.status(engine)["last_report"]["run_warning"].startswith(warning)
    assert warning not in reload_text(mine)
    assert program.status(engine)["last_report"]["run_warning"] is None
    assert program.run("verify", "--engine", engine.endpoint, "--model", b).json["equal"]
    engine.stop()


def test_rows_of_a_vision_towers_convolution_are_skipped_like_the_whole_of_it(program, start, checkpoint):
    a, b = checkpoint("qwen3_5_vision", "a"), checkpoint("qwen3_5_vision", "b")
    engine = start("serve", "--model", a, "--quantization", "fp8_per_channel")
    for step, mode in enumerate(("snapshot", "stream"), start=1):
        program.reload(engine, "--model", a)
        ranks = [start("publish", "--model", b, "--part", f"{rank}/2", "--mode", mode, "--lineage", "run", "--step", step)
                 for rank in range(2)]
        report = program.reload(engine, "--publisher", ",".join(rank.endpoint for rank in ranks))["report"]
        assert "model.visual.patch_embed.proj.weight" in {skipped["name"] for skipped in report["skipped"]}
        assert program.run("verify", "--engine", engine.endpoint, "--model", b).json["equal"]
    engine.stop()

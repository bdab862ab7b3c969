"""A publisher's process, the ranks' processes, and what they serve against the oracle: channels, modes and orders, before
an engine is built around the ranks."""

import os
import subprocess

import pytest
import safetensors.torch

import oracle

RANK_SECONDS = 60
ORDERS = [("snapshot", "layer"), ("stream", "layer"), ("stream", "checkpoint"), ("stream", "11")]


def start_ranks(folder, tp, recipe, out, *words, **environment):
    command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], folder, tp]
    return [subprocess.Popen([str(word) for word in (*command, rank, recipe, out / f"rank-{rank}", *words)],
                             stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
            for rank in range(tp)]


def finish(ranks):
    """(exit status, standard error) of each; all are killed when one takes too long."""
    try:
        return [(rank.communicate(timeout=RANK_SECONDS)[1], rank.returncode) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


# Families of the same blocks go the same way; qwen2's embeddings are tied.
WAYS = [("llama", *way, channel) for way in ORDERS for channel in ("shm", "zmq")]
WAYS += [("qwen2", "snapshot", "layer", "zmq"), ("qwen2", "stream", "11", "shm")]


@pytest.mark.parametrize("family, mode, order, channel", WAYS)
def test_ranks_serve_what_was_published(family, mode, order, channel, publish, checkpoint, tmp_path):
    folder = checkpoint(family, "a")
    for recipe, tp in (("fp8_per_tensor", 2), ("fp8_per_channel", 4), ("fp8_per_block", 1)):
        words = (f"way={publish(folder, mode, order)}", f"channel={channel}", "direct", "fill=165", "chunk=30000")
        for rank, (errors, status) in enumerate(finish(start_ranks(folder, tp, recipe, tmp_path, *words))):
            assert status == 0, errors
            served = safetensors.torch.load_file(tmp_path / f"rank-{rank}")
            assert oracle.differences(served, oracle.served_tensors(folder, tp, rank, recipe)) == []


def start_stages(folder, tp, stages, recipe, out, *words):
    command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], folder, tp]
    return [subprocess.Popen([str(word) for word in (*command, rank, recipe, out / f"stage-{stage}-{rank}",
                                                     f"pp={stages}", f"stage={stage}", *words)],
                             stderr=subprocess.PIPE, text=True)
            for stage in range(stages) for rank in range(tp)]


@pytest.mark.parametrize("family, mode, order", [*(("qwen2", *way) for way in ORDERS), ("llama", "snapshot", "layer")])
def test_the_stages_of_a_pipeline_take_one_version(family, mode, order, publish, checkpoint, tmp_path):
    """A stream is walked once for all of them."""
    folder = checkpoint(family, "a")
    words = (f"way={publish(folder, mode, order)}", "channel=shm", "direct", "fill=165", "chunk=30000")
    done = finish(start_stages(folder, 2, 2, "fp8_per_tensor", tmp_path, *words))
    assert [status for _, status in done] == [0] * 4, done
    for stage in range(2):
        for rank in range(2):
            served = safetensors.torch.load_file(tmp_path / f"stage-{stage}-{rank}")
            expected = oracle.served_tensors(folder, 2, rank, "fp8_per_tensor", sizes=[1, 1], stage=stage)
            assert oracle.differences(served, expected) == []


@pytest.mark.parametrize("channel", ["shm", "zmq"])
@pytest.mark.parametrize("mode", ["snapshot", "stream"])
def test_a_publisher_that_dies_is_named(mode, channel, publish, checkpoint, tmp_path):
    folder = checkpoint("qwen3", "a")
    endpoint = publish(folder, mode, "layer", LAYERCAST_FAILPOINTS="publisher:send.chunk=kill@3")
    words = (f"way={endpoint}", f"channel={channel}", "chunk=10000")
    [(errors, status)] = finish(start_ranks(folder, 1, "none", tmp_path, *words))
    assert status == 1 and endpoint in errors
    assert not (tmp_path / "rank-0").exists()


CHANGED = [(mode, f"{process}=corrupt@3", "digest") for mode in ("snapshot", "stream")
           for process in ("rank1:receive.chunk", "publisher:send.chunk")]


@pytest.mark.parametrize("mode, failpoint, word", [*CHANGED, ("stream", "publisher:send.tensor=corrupt@3", "model.")])
@pytest.mark.parametrize("channel", ["shm", "zmq"])
def test_bytes_that_were_changed_are_refused(mode, failpoint, word, channel, publish, checkpoint, tmp_path):
    folder = checkpoint("qwen3", "a")
    endpoint = publish(folder, mode, "layer", LAYERCAST_FAILPOINTS=failpoint)
    words = (f"way={endpoint}", f"channel={channel}", "chunk=10000")
    done = finish(start_ranks(folder, 2, "none", tmp_path, *words, LAYERCAST_FAILPOINTS=failpoint))
    assert any(status == 1 and "corrupt: " in errors and word in errors for errors, status in done), done
    assert all(status == 0 or not (tmp_path / f"rank-{rank}").exists() for rank, (_, status) in enumerate(done))

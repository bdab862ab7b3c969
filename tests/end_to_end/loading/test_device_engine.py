"""An engine on a GPU (`serve --device cuda`): it answers as one on the CPU does, takes new weights into the buffers that
its graph reads, and says so when it has lost them with its process. Once on a device that the tests play
(played_device_rank.cc), and once on a real one, where there is one."""

import json
import os
import shutil
import signal

import pytest
import torch

import program as layercast_program

RECIPE = "fp8_per_channel"
PROMPTS = [(3, 11, 4, 250), tuple(range(1, 41)), (7,), (9, 8, 7, 6, 5, 4), (100, 200)]


def _played(program, folder):
    """The program in a folder of its own, beside a rank program that plays the device."""
    folder.mkdir()
    os.link(program.path.resolve(), folder / "layercast")
    (folder / "layercast-rank-cuda").symlink_to(os.environ["LAYERCAST_PLAYED_RANK"])
    return layercast_program.Program(folder / "layercast", program.scratch)


@pytest.fixture(params=["played", "cuda"])
def start_on_device(request, program, tmp_path):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    on_device = program if request.param == "cuda" else _played(program, program.path.parent / f"played-{os.getpid()}")
    running = []

    def start(folder, *arguments, failpoints=""):
        engine = on_device.daemon("serve", "--model", folder, "--device", "cuda", "--max-model-len", 64, *arguments,
                                  failpoints=failpoints)
        running.append(engine)
        return engine

    yield start
    for engine in running:
        engine.kill()
    if on_device is not program:
        for path in on_device.path.parent.iterdir():
            path.unlink()
        on_device.path.parent.rmdir()


def answers(program, engine, prompts=PROMPTS):
    """All asked for at once."""
    asked = [program.start("generate", "--engine", engine.endpoint, "--tokens", ",".join(map(str, prompt)),
                           "--max-new", 8, "--logprobs") for prompt in prompts]
    return [program.finish(one).json for one in asked]


def assert_alike(got, expected):
    for one, other in zip(got, expected, strict=True):
        assert one["tokens"] == other["tokens"]
        assert one["logprobs"] == pytest.approx(other["logprobs"], abs=1e-3)


@pytest.mark.parametrize("policy", ["staged", "undo", "in_place"])
def test_it_answers_as_an_engine_on_the_cpu_before_and_after_a_reload(program, start, start_on_device, checkpoint,
                                                                      policy, assert_serves):
    a, b = (checkpoint("qwen2_untied", version) for version in "ab")
    engine = start_on_device(a, "--quantization", RECIPE, "--max-num-seqs", 2, "--commit", policy)
    on_cpu = start("serve", "--model", a, "--quantization", RECIPE)
    assert (engine.ready["device"], on_cpu.ready["device"]) == ("cuda", "cpu")
    before = answers(program, engine)
    assert_alike(before, answers(program, on_cpu))
    assert_serves(engine, a, RECIPE)

    publisher = start("publish", "--model", b)
    done = program.reload(engine, "--publisher", publisher.endpoint)
    assert done["version"] == publisher.version
    assert_serves(engine, b, RECIPE)
    program.reload(on_cpu, "--publisher", publisher.endpoint)
    after = answers(program, engine)
    assert_alike(after, answers(program, on_cpu))
    assert [one["tokens"] for one in after] != [one["tokens"] for one in before]
    assert all(span["version"] == publisher.version for one in after for span in one["spans"])
    assert program.run("verify", "--engine", engine.endpoint, "--model", b).json["equal"]


def test_a_sequence_is_bounded_by_what_the_cache_holds(program, start_on_device, checkpoint):
    engine = start_on_device(checkpoint("qwen2_untied", "a"))
    whole = program.generate(engine, range(1, 41), "--max-new", 24)
    assert len(whole["tokens"]) == 24
    refused = program.run("generate", "--engine", engine.endpoint, "--tokens", "1,2", "--max-new", 63, status=1).json
    assert "2 tokens and 63 new ones, this engine computes 64 positions" in refused["error"]["message"]


def _in_fp32(folder, to):
    """The same checkpoint, to be served in fp32: no router's near tie is turned over by rounding."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    return to


@pytest.mark.parametrize("spec", ["gpt_oss", "qwen3_next"])
def test_experts_and_states_answer_as_on_the_cpu_in_slots_that_others_had(program, start, start_on_device, checkpoint,
                                                                         spec, tmp_path):
    folder = _in_fp32(checkpoint(spec, "a"), tmp_path / "model")
    engine = start_on_device(folder, "--max-num-seqs", 2)
    on_cpu = start("serve", "--model", folder)
    assert_alike(answers(program, engine), answers(program, on_cpu))


def assert_lost(program, engine, version):
    status = program.status(engine)
    assert status["state"] == "torn" and status["version"] is None
    assert status["torn"] == {"from": version, "to": None}
    assert f"lost the weights of {version['lineage']}@{version['step']}" in program.text("status", "--engine",
                                                                                        engine.endpoint)
    for refused in (("generate", "--tokens", "3,11"), ("export", "--out", "nowhere")):
        said = program.run(refused[0], "--engine", engine.endpoint, *refused[1:], status=1).json
        assert said["error"]["code"] == "failed_precondition" and "torn" in said["error"]["message"]


def test_weights_that_went_with_their_process_are_asked_for_again(program, start, start_on_device, checkpoint,
                                                                  assert_serves):
    a, b = (checkpoint("qwen2_untied", version) for version in "ab")
    engine = start_on_device(a, "--quantization", RECIPE)
    os.kill(engine.pids[0], signal.SIGKILL)
    asked = program.run("generate", "--engine", engine.endpoint, "--tokens", "3,11", status=None).json
    assert asked.get("finish") == "aborted", asked
    assert_lost(program, engine, engine.version)

    publisher = start("publish", "--model", b)
    assert program.reload(engine, "--publisher", publisher.endpoint)["version"] == publisher.version
    assert_serves(engine, b, RECIPE)
    assert program.generate(engine, (3, 11))["finish"] == "length"


@pytest.mark.parametrize("asked", ["verify", "export", "lend"])
def test_the_first_to_ask_after_weights_went_is_told_so(asked, program, start, start_on_device, checkpoint, tmp_path):
    a = checkpoint("qwen2_untied", "a")
    engine = start_on_device(a, "--quantization", RECIPE)
    commands = {"verify": ("verify", "--engine", engine.endpoint, "--model", a),
                "export": ("export", "--engine", engine.endpoint, "--out", tmp_path / "state")}
    if asked == "lend":
        borrower = start("serve", "--model", a, "--quantization", RECIPE)
        commands["lend"] = ("reload", "--engine", borrower.endpoint, "--from-engine", engine.endpoint)
    os.kill(engine.pids[0], signal.SIGKILL)
    # The engine notices a moment later.
    layercast_program.wait_until(
        lambda: "this engine is torn" in program.run(*commands[asked], status=1).errors, 20, "it never said so")
    assert_lost(program, engine, engine.version)


@pytest.mark.parametrize("policy, point", [
    ("staged", "receive.chunk"), ("staged", "commit.prepare"), ("staged", "commit.copy"),
    ("undo", "commit.copy@9"), ("in_place", "commit.copy@9"),
])
def test_a_rank_that_dies_while_a_version_comes_leaves_none(program, start, start_on_device, checkpoint, policy, point,
                                                            assert_serves):
    a, b = (checkpoint("qwen2_untied", version) for version in "ab")
    name, _, nth = point.partition("@")
    failpoint = f"rank0:{name}=kill" + (f"@{nth}" if nth else "")
    engine = start_on_device(a, "--quantization", RECIPE, "--commit", policy, failpoints=failpoint)
    publisher = start("publish", "--model", b)
    done = program.reload(engine, "--publisher", publisher.endpoint, status=None)
    assert not done["ok"] and done["version"] is None and "rank 0" in done["error"]["message"]
    assert_lost(program, engine, engine.version)
    assert program.reload(engine, "--publisher", publisher.endpoint)["version"] == publisher.version
    assert_serves(engine, b, RECIPE)


def test_undo_puts_the_old_version_back(program, start, start_on_device, checkpoint, assert_serves):
    a, b = (checkpoint("qwen2_untied", version) for version in "ab")
    engine = start_on_device(a, "--quantization", RECIPE, "--commit", "undo", failpoints="rank0:commit.copy=throw@9")
    before = answers(program, engine)
    publisher = start("publish", "--model", b)
    done = program.reload(engine, "--publisher", publisher.endpoint, status=None)
    assert not done["ok"] and done["version"] == engine.version
    assert program.status(engine)["state"] == "serving"
    assert_serves(engine, a, RECIPE)
    assert_alike(answers(program, engine), before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so(program, checkpoint):
    built = program.path.with_name("layercast-rank-cuda").exists()  # where libtorch has its CUDA half
    refused = program.run("serve", "--model", checkpoint("qwen2_untied", "a"), "--device", "cuda", status=1)
    assert ("GPU 0: " if built else "made without libtorch, or without its CUDA half") in refused.json["error"]["message"]


def test_more_ranks_than_it_has_are_refused(program, checkpoint):
    refused = program.run("serve", "--model", checkpoint("qwen2_untied", "a"), "--device", "cuda", "--tp", 2, status=1)
    assert ("--device cuda: one rank computes the whole model: expected --tp 1, got 2"
            in refused.json["error"]["message"])

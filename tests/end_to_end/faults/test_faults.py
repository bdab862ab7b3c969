"""Whatever breaks while version B is on its way to an engine that serves A: the engine goes on serving A, whole, on
every rank; it answers, says what happened, and takes the next version. Each fault is shown to have struck
in mid-way."""

import os
import pathlib
import signal

import pytest

import program as layercast_program
from reload_setting import NAN_IN, PROMPT, RECIPE, fired, put_nan, spoiled, struck_mid_transfer


# A rank in trouble, in each stage. `whole` says that everything had arrived by then.
RANK_FAULTS = {
    "a corrupted chunk": ("receive.chunk=corrupt@3", False, ("digest",)),
    "an error while buffering": ("layer_buffer=throw@5", False, ("rank 1", "layer_buffer")),
    "an error while materializing": ("materialize=throw@4", False, ("rank 1", "materialize")),
    "an error while fusing": ("fuse_and_shard=throw@4", False, ("rank 1", "fuse_and_shard")),
    "an error while quantizing": ("quantize=throw@4", False, ("rank 1", "quantize")),
    "an error while verifying": ("verify=throw", True, ("rank 1", "verify")),
    "an error before the commit": ("commit.prepare=throw", True, ("rank 1", "commit.prepare")),
    "a rank killed while receiving": ("receive.chunk=kill@3", False, ("rank 1",)),
    "a rank frozen between two chunks": ("receive.chunk=stop@3", False, ("rank 1", "silent")),
    "a rank killed while buffering": ("layer_buffer=kill@5", False, ("rank 1",)),
    "a rank killed while quantizing": ("quantize=kill@4", False, ("rank 1",)),
    "a rank killed before the commit": ("commit.prepare=kill", True, ("rank 1",)),
}


# Stages behind the channel are the same for both.
RANK_CASES = [(fault, channel) for fault, (failpoint, _, _) in RANK_FAULTS.items() for channel in ("zmq", "shm")
              if channel == "zmq" or failpoint.startswith(("receive", "layer_buffer"))]


@pytest.mark.parametrize("fault, channel", RANK_CASES)
def test_one_rank_fails(fault, channel, setting):
    failpoint, whole, words = RANK_FAULTS[fault]
    setting.serve(failpoints=f"rank1:{failpoint}")
    # Snapshots go straight to staging: what arrives out of order passes through every stage.
    stages = ("--mode", "stream", "--order", "checkpoint") if failpoint.startswith(("materialize", "fuse")) else ()
    publisher = setting.publish(*stages)
    done = setting.reload("--publisher", publisher.endpoint, "--channel", channel)
    assert fired(setting.engine, failpoint.partition("=")[0])
    assert struck_mid_transfer(done["report"]) or whole
    setting.assert_failed_and_still_serving_a(done, *words)
    setting.assert_takes_b()


def test_a_path_that_was_never_committed_is_not_re_read(setting):
    setting.serve(failpoints="rank1:commit.prepare=throw")
    done = setting.reload("--model", setting.folders["b"])
    setting.assert_failed_and_still_serving_a(done, "rank 1", "commit.prepare")
    assert setting.reload()["ok"]
    setting.assert_serves(setting.engine, setting.folders["a"], RECIPE)


def test_a_rank_killed_while_it_commits_leaves_one_whole_version(setting):
    setting.serve(failpoints="rank1:commit.copy=kill@3")
    publisher = setting.publish()
    done = setting.reload("--publisher", publisher.endpoint)
    assert fired(setting.engine, "commit.copy")
    assert done["version"] in (setting.versions["a"], publisher.version)
    served = "b" if done["version"] == publisher.version else "a"
    assert done["ok"] == (served == "b")
    assert done["report"]["bytes"] == done["report"]["bytes_total"] > 0 and done["report"]["channel"]["name"] == "shm"
    setting.assert_serves(setting.engine, setting.folders[served], RECIPE)
    assert (setting.answer()["tokens"] == setting.answer_of_a) == (served == "a")
    setting.assert_takes_b()


@pytest.mark.parametrize("asked", ["verify", "export", "lend"])
def test_a_rank_that_died_while_nothing_was_asked_is_started_anew_by_whatever_is(asked, setting, tmp_path):
    setting.serve()
    commands = {"verify": ("verify", "--engine", setting.engine.endpoint, "--model", setting.folders["a"]),
                "export": ("export", "--engine", setting.engine.endpoint, "--out", tmp_path / "state")}
    if asked == "lend":
        borrower = setting.start("serve", "--model", setting.folders["b"], "--tp", 2, "--quantization", RECIPE)
        commands["lend"] = ("reload", "--engine", borrower.endpoint, "--from-engine", setting.engine.endpoint)
    os.kill(setting.engine.pids[1], signal.SIGKILL)
    # The engine notices a moment later.
    layercast_program.wait_until(lambda: setting.program.run(*commands[asked], status=None).status == 0, 20,
                                 f"{asked} never found its ranks")
    assert setting.program.status(setting.engine)["pids"] != setting.engine.pids
    setting.assert_serving_a()


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_an_engine_whose_rank_ends_while_it_lends_is_named(ends, setting):
    setting.serve(tp=1)
    lender = setting.start("serve", "--model", setting.folders["b"], "--quantization", RECIPE,
                           failpoints=f"lender:answer.hello={ends}")
    done = setting.reload("--from-engine", lender.endpoint)
    assert fired(lender, "answer.hello")
    assert done["error"]["code"] in ("unavailable", "deadline_exceeded")
    setting.assert_failed_and_still_serving_a(done, lender.endpoint)


def is_stopped(pid):
    return "State:\tT" in pathlib.Path(f"/proc/{pid}/status").read_text()


# What the first rank says of a step that failed: why its peer did not come, or why it answered nothing itself.
@pytest.mark.parametrize("tp, pp, rank, said", [(2, 1, 1, "rank 0: all_reduce number"), (1, 2, 0, "rank 0: process")])
def test_nobody_waits_longer_for_a_frozen_rank_than_it_takes_to_notice_it(tp, pp, rank, said, setting):
    setting.serve(tp=tp, pp=pp)
    frozen = setting.engine.pids[rank]
    os.kill(frozen, signal.SIGSTOP)
    layercast_program.wait_until(lambda: is_stopped(frozen), 20, "it was not stopped")
    asked = setting.program.start("generate", "--engine", setting.engine.endpoint, "--tokens",
                                  ",".join(map(str, PROMPT)), "--max-new", 6)
    layercast_program.wait_until(lambda: f"rank {rank}: process {frozen} was silent" in setting.engine.errors(), 20,
                                 "nobody noticed")
    layercast_program.wait_until(lambda: not layercast_program.is_running(frozen), 5,
                                 "it may go on some day, and the other rank still waits for it")
    assert setting.program.finish(asked).json["tokens"] == setting.answer_of_a
    log = setting.engine.errors()
    assert f"generating: {said}" in log and "did not come within" not in log
    assert log.count("starting all 2 ranks anew") == 1
    setting.assert_serving_a()


# The publisher in trouble.


@pytest.mark.parametrize("mode", ["snapshot", "stream"])
@pytest.mark.parametrize("channel", ["shm", "zmq"])
def test_a_publisher_is_killed(channel, mode, setting):
    setting.serve()
    # Over shm nothing is sent: chunks are announced, a snapshot's all together, and a stream may be far ahead. By the
    # 40th request some chunks have come: two ranks ask for 16 each before they have got any.
    point = "serve.chunk" if channel == "zmq" else "send.chunk"
    publisher = setting.publish("--mode", mode, failpoints=f"publisher:{point}=kill@40")
    done = setting.reload("--publisher", publisher.endpoint, "--channel", channel)
    assert fired(publisher, point)
    assert struck_mid_transfer(done["report"]) or channel == "shm"
    setting.assert_failed_and_still_serving_a(done, publisher.endpoint)
    setting.assert_takes_b(setting.publish())


def test_a_stalled_publisher_is_given_up_and_the_engine_answers_meanwhile(setting):
    setting.serve()
    publisher = setting.publish(failpoints="publisher:serve.chunk=stop@40")
    waiting = setting.program.start("reload", "--engine", setting.engine.endpoint, "--publisher", publisher.endpoint,
                                    "--channel", "zmq")
    layercast_program.wait_until(lambda: fired(publisher, "serve.chunk"), 20, "the publisher did not stall")
    assert setting.answer()["tokens"] == setting.answer_of_a
    outcome = setting.program.finish(waiting, status=1)
    done = outcome.json["engines"][0]
    assert struck_mid_transfer(done["report"])
    setting.assert_failed_and_still_serving_a(done, publisher.endpoint)
    publisher.signal(signal.SIGCONT)
    setting.assert_takes_b()


def assert_gone(error, publisher):
    assert error["code"] in ("unavailable", "deadline_exceeded"), error
    assert publisher.endpoint in error["message"] and "CUDA" not in error["message"], error


@pytest.mark.parametrize("ends", ["kill", "stop"])
@pytest.mark.parametrize("point", ["answer.hello", "serve.probe"])
def test_a_publisher_that_ends_while_its_channels_are_tried_is_named(point, ends, setting):
    setting.serve(tp=1)
    publishers = [setting.publish("--channel", "ucx,zmq", failpoints=f"publisher:{point}={ends}@{skip}")
                  for skip in (0, 0 if point == "answer.hello" else 3)]
    assert_gone(setting.program.refused("probe", "--publisher", publishers[0].endpoint), publishers[0])
    done = setting.reload("--publisher", publishers[1].endpoint)
    assert all(fired(publisher, point) for publisher in publishers)
    assert_gone(done["error"], publishers[1])
    setting.assert_failed_and_still_serving_a(done)


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_a_publisher_that_ends_between_its_probe_and_the_first_chunk_is_named(ends, setting):
    setting.serve(tp=1)
    publisher = setting.publish(failpoints=f"publisher:send.chunk={ends}")
    done = setting.reload("--publisher", publisher.endpoint)
    assert fired(publisher, "send.chunk")
    assert_gone(done["error"], publisher)
    setting.assert_failed_and_still_serving_a(done)


def test_every_command_names_a_frozen_publisher(setting):
    publisher = setting.publish()
    publisher.freeze()
    for command in (("status",), ("probe",), ("plan", "--model", setting.folders["a"]),
                    ("serve", "--model", setting.folders["a"], "--load-format", "remote")):
        assert_gone(setting.program.refused(*command, "--publisher", publisher.endpoint), publisher)


@pytest.mark.parametrize("mode", ["snapshot", "stream"])
@pytest.mark.parametrize("channel", ["shm", "zmq"])
def test_a_chunk_that_was_changed_on_its_way_is_refused(channel, mode, setting):
    setting.serve()
    publisher = setting.publish("--mode", mode, failpoints="publisher:send.chunk=corrupt@3")
    done = setting.reload("--publisher", publisher.endpoint, "--channel", channel)
    # The digests of a stream's chunks come last, those of a snapshot first.
    assert fired(publisher, "send.chunk") and (struck_mid_transfer(done["report"]) or mode == "stream")
    setting.assert_failed_and_still_serving_a(done, "digest")
    assert done["error"]["code"] == "corrupt"
    setting.assert_takes_b()


@pytest.mark.parametrize("channel", ["shm", "zmq"])
def test_a_tensor_that_comes_short_is_refused(channel, setting):
    setting.serve()
    publisher = setting.publish("--mode", "stream", failpoints="publisher:send.tensor=corrupt@4")
    done = setting.reload("--publisher", publisher.endpoint, "--channel", channel)
    assert fired(publisher, "send.tensor") and struck_mid_transfer(done["report"])
    setting.assert_failed_and_still_serving_a(done, "model.")
    setting.assert_takes_b()


# Bad weights.


def test_a_nan_is_refused_by_a_snapshot_before_it_is_published(setting, tmp_path):
    folder = spoiled(setting.folders["b"], tmp_path / "nan", put_nan)
    outcome = setting.program.run("publish", "--model", folder, status=1)
    assert outcome.json["error"]["code"] == "corrupt"
    assert NAN_IN in outcome.json["error"]["message"] and "[5, 7]" in outcome.json["error"]["message"]


def test_a_nan_ends_a_stream(setting, tmp_path):
    setting.serve()
    publisher = setting.publish("--mode", "stream", "--stream-window", 1,  # it reads no tensor before the last is taken
                                folder=spoiled(setting.folders["b"], tmp_path / "nan", put_nan))
    done = setting.reload("--publisher", publisher.endpoint)
    assert struck_mid_transfer(done["report"])
    setting.assert_failed_and_still_serving_a(done, NAN_IN, "[5, 7]")
    setting.assert_takes_b(setting.publish())


def test_a_nan_in_a_file_is_refused_while_it_is_read(setting, tmp_path):
    setting.serve()
    done = setting.reload("--model", spoiled(setting.folders["b"], tmp_path / "nan", put_nan))
    setting.assert_failed_and_still_serving_a(done, NAN_IN.rpartition(".")[0].replace("up_proj", ""))
    setting.assert_takes_b(setting.publish())


def test_tensors_that_do_not_fit_are_all_named_before_a_byte_moves(setting, tmp_path):
    missing, extra = "model.layers.0.self_attn.q_proj.weight", "model.layers.7.mlp.up_proj.weight"
    short = "model.norm.weight"

    def edit(tensors):
        tensors[extra] = tensors.pop(missing)
        tensors[short] = tensors[short][:-1]

    setting.serve()
    publisher = setting.publish(folder=spoiled(setting.folders["b"], tmp_path / "unfit", edit))
    done = setting.reload("--publisher", publisher.endpoint)
    setting.assert_failed_and_still_serving_a(done, missing, extra, short, "159", "160")
    assert done["report"] is None or done["report"]["bytes"] == 0
    setting.assert_takes_b(setting.publish())


def test_a_publisher_that_is_not_there_is_named(setting):
    setting.serve()
    done = setting.reload("--publisher", "tcp://127.0.0.1:9", "--timeout", 5)
    setting.assert_failed_and_still_serving_a(done, "tcp://127.0.0.1:9")
    assert done["error"]["code"] in ("unavailable", "deadline_exceeded")


def test_finite_weights_whose_logits_are_not_fail_what_asks_for_tokens_and_no_rank(setting, tmp_path):
    def explode(tensors):
        for name in tensors:
            if "proj" in name:
                tensors[name] = tensors[name] * 1e20

    setting.serve()
    assert setting.reload("--model", spoiled(setting.folders["b"], tmp_path / "exploded", explode))["ok"]
    for _ in range(2):
        error = setting.program.refused("generate", "--engine", setting.engine.endpoint, "--tokens", "3,11")
        assert error["code"] == "corrupt" and "the logit of token 0 is" in error["message"]
    assert setting.program.status(setting.engine)["pids"] == setting.engine.pids
    setting.assert_takes_b(setting.publish())

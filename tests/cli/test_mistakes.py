"""Wrong flags, wrong values, engines and publishers that cannot start, peers that are not there: each is refused by a
message that names what is wrong, and by the exit status of docs/cli.md."""

import json
import shutil

import pytest
import safetensors.torch
import torch



def test_ranks_that_cannot_start_say_why(program, folders, monkeypatch):
    monkeypatch.setenv("LAYERCAST_FAILPOINTS", "what")
    outcome = program.run("serve", "--model", folders["a"], "--tp", 2, status=1)
    error = outcome.json["error"]
    assert error["code"] == "invalid_argument"
    assert outcome.errors == f"layercast serve: {error['message']}\n"  # and no process says it again
    said = [f"rank {rank}: LAYERCAST_FAILPOINTS: expected [role:]name=" in error["message"] for rank in range(2)]
    assert any(said) and "got 'what'" in error["message"]  # whichever said so first


@pytest.mark.parametrize("change, flags, words", [({}, ["--tp", 3], "is not divisible by tp_size 3"),
                                                  ({"architectures": []}, [], "has no `architectures`"),
                                                  ({"architectures": ["Qwen3"]}, [], "[Qwen3] are not supported")])
def test_a_model_that_no_rank_could_build_is_refused_before_any_is_started(change, flags, words, program, tmp_path, folders):
    config = json.loads((folders["a"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    outcome = program.run("serve", "--model", tmp_path, *flags, status=1)
    message = outcome.json["error"]["message"]
    assert message.startswith(f"{tmp_path}: ") and words in message
    assert len(outcome.errors.splitlines()) == 1  # and no process says it again


def test_an_architecture_that_nobody_has_described_is_named_before_what_its_file_lacks(program, tmp_path):
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file({"wte.weight": torch.ones(2, 16)}, tmp_path / "model.safetensors")
    for command in ("plan", "serve"):
        error = program.refused(command, "--model", tmp_path)
        assert error["code"] == "unsupported" and error["message"].startswith(
            f"{tmp_path}: Model architectures [GPT2LMHeadModel] are not supported for now. Supported architectures: ")
        assert error["message"].endswith("in one call, ModelRegistry::Register (docs/models.md)")
    inspected = program.run("inspect", tmp_path)  # a host program may have described it: no reason to refuse the files
    assert inspected.json["warnings"] == [error["message"]] and error["message"] in inspected.errors


def test_a_wrong_model_is_refused_in_a_few_lines_and_plan_lists_everything(program, tmp_path, folders):
    wrong = shutil.copytree(folders["a"], tmp_path / "wrong")
    config = json.loads((wrong / "config.json").read_text())
    changes = {"num_hidden_layers": config["num_hidden_layers"] + 2, "layer_types": None}
    (wrong / "config.json").write_text(json.dumps(config | changes))
    problems = program.run("plan", "--model", wrong, status=1).json["problems"]
    missing = [problem.removeprefix("missing: ") for problem in problems]
    lines = program.refused("serve", "--model", wrong)["message"].splitlines()
    assert lines[0].endswith(": the manifest does not fit:") and len(lines) == 3
    assert lines[1] == (f"  {len(missing)} missing. Following weights were not initialized from checkpoint: "
                        f"{', '.join(missing[:5])} and {len(missing) - 5} more")
    assert lines[2] == "  `layercast plan --model DIR`, or with `--publisher EP`, lists every one and why"


@pytest.mark.parametrize("arguments", [
    ["publish"], ["publish", "--model", "x", "--nccl-fleet", "0"], ["publish", "--model", "x", "--nccl-fleet", "65"],
    ["publish", "--model", "x", "--step", "-1"], ["serve", "--model", "x", "--load-format", "dummy", "--seed", "-1"],
    ["publish", "--model", "x", "--mode", "push"], ["publish", "--model", "x", "--order", "odd"],
    ["publish", "--model", "x", "--order", "checkpoint"], ["serve"], ["serve", "--model", "x", "--tp", "0"],
    ["serve", "--model", "x", "--quantization", "fp7"], ["serve", "--model", "x", "--seed", "3"], ["reload"], ["status"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--publisher", "tcp://127.0.0.1:9", "--model", "x"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--publisher", "tcp://127.0.0.1:9", "--version", "run-17"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--model", "x", "--channel", "shm"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--publisher", ""], ["serve", "--model", "x", "--pp-layers", "1,1"],
    ["serve", "--model", "x", "--quantization", "fp8_per_channel", "--power-of-two-scales"],
    ["generate", "--engine", "tcp://127.0.0.1:9"], ["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "a,b"],
    ["verify", "--engine", "tcp://127.0.0.1:9"], ["export", "--engine", "tcp://127.0.0.1:9"]], ids=" ".join)
def test_wrong_usage(arguments, program):
    assert program.refused(*arguments, status=2)["code"] == "invalid_argument"


@pytest.mark.parametrize("arguments, words", [
    (["publish", "--model", "x", "--step", "-1"], "--step: expected a whole number from 0, got '-1'"),
    (["publish", "--model", "x", "--step", "1e3"], "--step: expected a whole number from 0, got '1e3'"),
    (["serve", "--model", "x", "--max-model-len", "0"], "--max-model-len: expected a whole number from 1, got '0'"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "3,x"],
     "--tokens: expected whole numbers with commas between, got '3,x'"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "3,,4"], "with commas between, got '3,,4'"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "3,-4"], "with commas between, got '3,-4'"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "2147483648"], "with commas between, got '2147483648'"),
    (["serve", "--model", "x", "--pp", "2", "--pp-layers", "1,"],
     "--pp-layers: expected whole numbers with commas between, got '1,'"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "3", "--temperature", "-1"],
     "--temperature: expected a number from 0, got '-1'"),
    (["reload", "--engine", "tcp://127.0.0.1:9", "--publisher", ""], "--publisher: expected a value, got an empty one"),
    (["reload", "--engine", "tcp://127.0.0.1:9", "--model", ""], "--model: expected a value"),
    (["publish", "--model", ""], "--model: expected a value, got an empty one"),
    (["publish", "--model", "x", "--channel", "zmq,,shm"],
     "--channel: expected names with commas between, got 'zmq,,shm'"),
    (["reload", "--engine", "tcp://127.0.0.1:9,", "--publisher", "tcp://127.0.0.1:9"],
     "--engine: expected names with commas between, got 'tcp://127.0.0.1:9,'"),
    (["publish", "--model", "x", "--channel", "inproc"], "--channel inproc: expected a channel that reaches other"),
    (["publish", "--model", "x", "--stream-window", "5"], "--stream-window is for streams: say --mode stream"),
    (["serve", "--model", "x", "--secondary-weights", "draft.="], "expected PREFIX=PATH, got 'draft.='"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", ""], "--tokens: expected a value, got an empty one"),
    (["publish", "--model", "x", "--lineage", "a\nb"],
     "--lineage: lineage 'a\\x0ab': expected UTF-8 without control characters"),
    (["status", "--engine", "tcp://127.0.0.1:9", "--timeout", "nan"],
     "--timeout: expected a number from 0.001 to 1000000, got 'nan'"),
    (["status", "--engine", "tcp://127.0.0.1:9", "--timeout", "inf"], "from 0.001 to 1000000, got 'inf'"),
    (["status", "--engine", "tcp://127.0.0.1:9", "--timeout", "0"], "from 0.001 to 1000000, got '0'"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "3", "--temperature", "nan"],
     "--temperature: expected a number from 0, got 'nan'"),
    (["publish", "--model", "x", "--channel", "zmq,pigeon"], "--channel: expected one of shm, "),
    (["serve", "--model", "x", "--channel", "pigeon"], "zmq, got 'pigeon'"),
    (["reload", "--engine", "tcp://127.0.0.1:9", "--channel", "pigeon"], "zmq, got 'pigeon'"),
    (["serve", "--model", "x", "--channel", "inproc"], "--channel inproc: expected a channel that reaches other"),
    (["reload", "--engine", "tcp://127.0.0.1:9", "--channel", "inproc"], "--channel inproc: expected a channel"),
])
def test_a_number_that_is_none_is_shown_beside_what_was_expected(arguments, words, program):
    assert words in program.refused(*arguments, status=2)["message"]


@pytest.mark.parametrize("arguments", [
    ["publish", "--model", "x", "--lineage="], ["publish", "--model", "x", "--step=", "7"],
    ["publish", "--model=", "x"], ["status", "--engine="], ["reload", "--engine=", "tcp://127.0.0.1:9"],
    ["generate", "--engine", "tcp://127.0.0.1:9", "--tokens=", "3"]], ids=" ".join)
def test_an_empty_value_does_not_become_the_word_behind_it(arguments, program):
    flag, = (word.removesuffix("=") for word in arguments if word.endswith("="))
    assert f"{flag}: expected a value, got an empty one" in program.refused(*arguments, status=2)["message"]


def test_the_next_option_is_no_value_of_one_that_lacks_its_own(program):
    assert "--engine: expected a value, got '--json'" in program.refused("status", "--engine", status=2)["message"]
    assert "'--seed'" in program.refused("publish", "--model", "x", "--lineage", "--seed", status=2)["message"]


@pytest.mark.parametrize("flag", [
    ["publish", "--model", "x", "--bind"], ["serve", "--model", "x", "--bind"],
    ["serve", "--model", "x", "--relay"], ["serve", "--model", "x", "--load-format", "remote", "--publisher"],
    ["serve", "--model", "x", "--load-format", "remote", "--from-engine"], ["reload", "--engine"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--publisher"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--from-engine"], ["generate", "--tokens", "3", "--engine"],
    ["verify", "--model", "x", "--engine"], ["export", "--out", "x", "--engine"], ["status", "--engine"],
    ["status", "--publisher"], ["probe", "--publisher"], ["plan", "--model", "x", "--publisher"]], ids=" ".join)
def test_an_endpoint_that_is_none_is_wrong_usage(flag, program):
    for wrong in ("foo", "tcp://127.0.0.1:99999", "tcp://127.0.0.1:nowhere"):
        message = program.refused(*flag, wrong, status=2)["message"]
        assert f"{flag[-1]}: endpoint '{wrong}': expected tcp://HOST:PORT" in message


def test_a_flag_that_is_misspelt_is_named_even_where_it_was_required(program):
    message = program.refused("serve", "--modle", "x", status=2)["message"]
    assert "there is no option '--modle': did you mean '--model'?" in message
    message = program.refused("serve", "--modle=x", status=2)["message"]  # and nothing stands for the folder
    assert "--model is required; there is no option '--modle=x': did you mean '--model'?" in message


@pytest.mark.parametrize("arguments, code, words", [
    (["--max-model-len", "1000000"], "invalid_argument", "a sequence of 1000000 tokens: the model has "),
    (["--pp", "9"], "invalid_argument", "pp_size 9 exceeds num_hidden_layers"),
    (["--bind", "tcp://0.0.0.0:0"], "invalid_argument", "0.0.0.0"),
    (["--model", "/nowhere"], "not_found", "/nowhere"),
])
def test_an_engine_that_cannot_start_says_why(arguments, code, words, program, folders):
    model = [] if "--model" in arguments else ["--model", folders["a"]]
    error = program.refused("serve", *model, *arguments)
    assert error["code"] == code and words in error["message"]


def test_a_publisher_that_cannot_start_says_why(program, folders, tmp_path):
    assert "0.0.0.0" in program.refused("publish", "--model", folders["a"], "--bind", "tcp://0.0.0.0:0")["message"]
    assert program.refused("publish", "--model", tmp_path)["code"] == "not_found"


def test_an_engine_whose_endpoint_is_refused_says_so_before_it_loads(program, tmp_path, folders):
    (tmp_path / "config.json").write_text((folders["a"] / "config.json").read_text())
    error = program.refused("serve", "--model", tmp_path, "--bind", "ipc:///nowhere/engine")
    assert "ipc:///nowhere/engine" in error["message"]


def test_a_peer_that_is_not_there_is_named(program):
    for command in (["status", "--engine"], ["status", "--publisher"], ["generate", "--tokens", "1", "--engine"]):
        error = program.refused(*command, "tcp://127.0.0.1:9", "--timeout", "0.3")
        assert error["code"] in ("unavailable", "deadline_exceeded") and "tcp://127.0.0.1:9" in error["message"]


@pytest.mark.parametrize("command", [["status", "--engine"], ["status", "--publisher"]], ids=" ".join)
def test_a_peer_that_never_answers_is_asked_for_by_its_endpoint(program, command):
    error = program.refused(*command, "tcp://127.0.0.1:9")
    assert error["code"] == "unavailable"
    assert "it has never answered; does it run, and is this its endpoint?" in error["message"]


def test_an_engine_is_no_publisher_and_the_other_way_round(engine, publisher, program):
    calls = [(engine, ["status", "--publisher"]), (engine, ["probe", "--publisher"]), (publisher, ["status", "--engine"])]
    for wrong, command in ((process.endpoint, [*asks, process.endpoint]) for process, asks in calls):
        error = program.refused(*command)
        assert error["code"] in ("corrupt", "invalid_argument") and wrong in error["message"]


@pytest.mark.parametrize("what", [["--engine"], ["--publisher"]], ids=" ".join)
def test_a_host_that_nobody_knows_is_named(what, program):
    error = program.refused("status", *what, "tcp://trainer-7.invalid:7700")
    assert error["code"] == "unavailable" and "the host 'trainer-7.invalid'" in error["message"]


def test_an_engine_names_the_host_of_a_publisher_that_nobody_knows(engine, program):
    error = program.reload(engine, "--publisher", "tcp://trainer-7.invalid:7700", status=1)["error"]
    assert error["code"] == "unavailable" and "the host 'trainer-7.invalid'" in error["message"]


@pytest.mark.parametrize("answer", [5, {}, {"differences": [{"rank": 0}], "tensors": 1, "bytes": 1}])
@pytest.mark.parametrize("command", [["status"], ["generate", "--tokens", "3"], ["verify", "--model", "."],
                                     ["export", "--out", "x"]])
def test_an_answer_that_cannot_be_read_is_corrupt_and_its_engine_is_named(command, answer, fake, program):
    engine = fake(answer)
    error = program.refused(*command, "--engine", engine)
    assert error["code"] == "corrupt" and f"engine {engine}: its answer cannot be read: " in error["message"]


def test_what_a_reload_has_done_is_told_whatever_its_report_says(fake, program):
    version = {"lineage": "run", "step": 2, "digest": "0" * 32}
    engine = fake({"ok": True, "version": version, "previous": None, "report": {"channel": {}}, "error": None})
    [outcome] = program.run("reload", "--engine", engine, "--publisher", "tcp://127.0.0.1:9").json["engines"]
    assert outcome["ok"] and outcome["version"] == version and outcome["report"] == {"channel": {}}
    text = program.text("reload", "--engine", engine, "--publisher", "tcp://127.0.0.1:9")
    assert f"{engine}: serves run@2" in text and "cannot be read" in text

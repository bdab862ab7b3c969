"""Weights whose tensors fit, of another config.json than the engine's: from every source they are refused before a byte
moves, naming each field, and taken with a warning where that is asked for."""

import json
import shutil

import pytest

import drafts
import other_formats
import program as layercast_program

PROMPT = (3, 11, 4)
OTHER = {"rms_norm_eps": 0.5, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 80}
NAMED = ("rms_norm_eps: expected 1e-06, got 0.5", "num_attention_heads: expected 8, got 4",
         "num_key_value_heads: expected 2, got 1", "head_dim: expected 40, got 80")
# Of the same tensors, and of the same model.
SAME = {"transformers_version": "9.9", "torch_dtype": "float32", "use_cache": False, "initializer_range": 1.0,
        "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.5, "rms_norm_eps": 0.000001}


def altered(folder, out, fields):
    """A copy with other fields in config.json."""
    shutil.copytree(folder, out)
    config = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | fields))
    return out


class Setting:
    """An engine that serves A, and B, which fits, in folders of other configurations."""

    def __init__(self, program, start, checkpoint, assert_serves, tmp_path):
        self.program, self.assert_serves = program, assert_serves
        self.a, self.b = checkpoint("qwen3", "a"), checkpoint("qwen3", "b")
        self.other = altered(self.b, tmp_path / "other", OTHER)
        self.same = altered(self.b, tmp_path / "same", SAME)
        self.engine = start("serve", "--model", self.a, "--tp", 2)

    def assert_refused(self, *source, named=NAMED, whose=""):
        before = self.program.generate(self.engine, PROMPT)
        outcome = self.program.reload(self.engine, *source, status=1)
        assert outcome["error"]["code"] == "invalid_argument"
        for each in named:
            assert f"{whose}: {each}" in outcome["error"]["message"]
        assert outcome["report"]["bytes"] == 0
        assert self.program.generate(self.engine, PROMPT) == before
        self.assert_serves(self.engine, self.a, "none")

    def assert_taken_if_allowed(self, *source, folder, named=NAMED, whose=""):
        report = self.program.reload(self.engine, *source, "--allow-config-change")["report"]
        assert sorted(report["config_changes"]) == sorted(f"{whose}: {each}" for each in named)
        self.assert_serves(self.engine, folder, "none")
        self.assert_taken("--model", self.a, folder=self.a)

    def assert_taken(self, *source, folder, compared=True):
        report = self.program.reload(self.engine, *source)["report"]
        assert (report["config_compared"], report["config_changes"]) == (compared, [])
        self.assert_serves(self.engine, folder, "none")


@pytest.fixture
def fitting(program, start, checkpoint, assert_serves, tmp_path):
    return Setting(program, start, checkpoint, assert_serves, tmp_path)


@pytest.mark.parametrize("mode", ["snapshot", "stream"])
def test_from_a_publisher(mode, fitting, start, program):
    publisher = start("publish", "--model", fitting.other, "--mode", mode)
    source, whose = ("--publisher", publisher.endpoint), f"publisher {publisher.endpoint}"
    fitting.assert_refused(*source, whose=whose)
    fitting.assert_taken_if_allowed(*source, folder=fitting.b, whose=whose)
    plan = program.run("plan", "--model", fitting.a, *source, status=1).json
    assert sorted(plan["config_changes"]) == sorted(plan["problems"]) == sorted(f"{whose}: {each}" for each in NAMED)
    same = start("publish", "--model", fitting.same, "--mode", mode)
    assert program.run("plan", "--model", fitting.a, "--publisher", same.endpoint).json["config_changes"] == []
    fitting.assert_taken("--publisher", same.endpoint, folder=fitting.b)


def test_from_the_ranks_of_a_sharded_trainer(fitting, start, program):
    def parts(*folders):
        return ",".join(start("publish", "--model", folder, "--part", f"{rank}/2", "--lineage", "run").endpoint
                        for rank, folder in enumerate(folders))

    both = parts(fitting.other, fitting.other)
    fitting.assert_refused("--publisher", both, whose=f"publisher {both.split(',')[0]}")
    fitting.assert_refused("--publisher", both, whose=f"publisher {both.split(',')[1]}")
    mixed = parts(fitting.same, fitting.other)
    for flags in ((), ("--allow-config-change",)):
        outcome = program.reload(fitting.engine, "--publisher", mixed, *flags, status=1)
        assert "one version of two configurations" in outcome["error"]["message"]
        assert "num_attention_heads: expected 8, got 4" in outcome["error"]["message"]
    fitting.assert_taken("--publisher", parts(fitting.same, fitting.b), folder=fitting.b)


def test_from_a_folder(fitting, program):
    source, whose = ("--model", fitting.other), f"checkpoint {fitting.other}"
    fitting.assert_refused(*source, whose=whose)
    fitting.assert_taken_if_allowed(*source, folder=fitting.b, whose=whose)
    fitting.assert_taken("--model", fitting.same, folder=fitting.b)
    command = ["reload", "--engine", fitting.engine.endpoint, *source, "--allow-config-change"]
    assert f"  warning: {whose}: rms_norm_eps: expected 1e-06, got 0.5\n" in program.text(*command)
    (fitting.same / "config.json").unlink()
    fitting.assert_taken("--model", fitting.same, folder=fitting.b, compared=False)
    assert "not compared" in program.text("reload", "--engine", fitting.engine.endpoint)
    # The bytes are what verify holds against each other; it names the rest.
    verified = program.run("verify", "--engine", fitting.engine.endpoint, "--model", fitting.other).json
    assert verified["equal"] and sorted(verified["config_changes"]) == sorted(f"{whose}: {each}" for each in NAMED)


def test_a_folder_that_is_read_again(fitting, program):
    fitting.assert_taken("--model", fitting.same, folder=fitting.b)
    shutil.copy(fitting.other / "config.json", fitting.same)
    error = program.reload(fitting.engine, status=1)["error"]
    assert f"checkpoint {fitting.same}: rms_norm_eps: expected 1e-06, got 0.5" in error["message"]


def test_from_an_engine(fitting, start, program, tmp_path):
    theta = altered(fitting.b, tmp_path / "theta", {"rope_parameters": {"rope_type": "default", "rope_theta": 77}})
    lender = start("serve", "--model", theta, "--tp", 2)
    outcome = program.reload(fitting.engine, "--from-engine", lender.endpoint, status=1)
    assert "rope_theta: expected " in outcome["error"]["message"] and "got 77.0" in outcome["error"]["message"]
    fitting.assert_serves(fitting.engine, fitting.a, "none")
    taken = program.reload(fitting.engine, "--from-engine", lender.endpoint, "--allow-config-change")
    assert len(taken["report"]["config_changes"]) == 2  # of either rank's lender
    fitting.assert_serves(fitting.engine, fitting.b, "none")
    # An engine that starts so has its model's configuration, too.
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(fitting.a / "config.json", bare)
    remote = ("serve", "--model", bare, "--tp", 2, "--load-format", "remote", "--from-engine", lender.endpoint)
    assert "got 77.0" in program.run(*remote, status=1).json["error"]["message"]
    fitting.assert_serves(start(*remote, "--allow-config-change"), fitting.b, "none")


def test_from_an_export(fitting, start, program, tmp_path):
    lender = start("serve", "--model", fitting.b, "--tp", 2)
    program.export(lender, tmp_path / "state")
    fitting.assert_taken("--model", tmp_path / "state", folder=fitting.b)
    shutil.copy(fitting.other / "config.json", tmp_path / "state")
    error = program.reload(fitting.engine, "--model", tmp_path / "state", status=1)["error"]
    assert f"checkpoint {tmp_path / 'state'}: num_attention_heads: expected 8, got 4" in error["message"]


@pytest.mark.parametrize("load_format", ["gguf", "mistral"])
def test_from_files_that_say_it_in_their_own_way(load_format, start, program, checkpoint, assert_serves, tmp_path):
    a, b = checkpoint("llama", "a"), checkpoint("llama", "b")

    def write(name, **said):
        if load_format == "mistral":
            other_formats.write_mistral(b, tmp_path / name, said=said)
        else:
            other_formats.write_gguf(b, tmp_path / name, "BF16", said=said)
        return tmp_path / name

    same, other = write("same"), write("other", rms_norm_eps=0.5, rope_theta=77.0)
    engine = start("serve", "--model", a)
    named = ["rms_norm_eps: expected 1e-06, got 0.5", "rope_theta: expected "]
    for source in (("--model", other), ("--publisher", start("publish", "--model", other).endpoint)):
        message = program.reload(engine, *source, status=1)["error"]["message"]
        assert all(each in message for each in named), message
        assert_serves(engine, a, "none")
        changes = program.reload(engine, *source, "--allow-config-change")["report"]["config_changes"]
        assert len(changes) == 2
        assert program.reload(engine, "--model", a)["ok"]
    for source in (("--model", same), ("--publisher", start("publish", "--model", same).endpoint)):
        report = program.reload(engine, *source)["report"]
        assert (report["config_compared"], report["config_changes"]) == (True, [])
        assert_serves(engine, b, "none")


def test_the_draft_models_own_folder(start, program, checkpoint, checkpoint_cache, tmp_path):
    a, b = checkpoint("llama", "a"), checkpoint("llama", "b")
    eagle = drafts.eagle3(checkpoint_cache, tmp_path / "eagle", "b")
    other = altered(eagle, tmp_path / "other", {"rms_norm_eps": 0.5})
    engine = start("serve", "--model", a, "--draft", eagle)
    source = ("--model", b, "--secondary-weights")
    error = program.reload(engine, *source, f"draft.={other}", status=1)["error"]
    assert f"checkpoint {other}: rms_norm_eps: expected " in error["message"]
    assert program.reload(engine, *source, f"draft.={eagle}")["report"]["config_changes"] == []


def test_several_engines_are_each_compared(fitting, start, program, tmp_path):
    epsilon = altered(fitting.b, tmp_path / "epsilon", {"rms_norm_eps": 0.5})
    own = start("serve", "--model", epsilon, "--tp", 1)
    publisher = start("publish", "--model", epsilon)
    engines = ",".join(map(layercast_program.endpoint, (fitting.engine, own)))
    done = program.run("reload", "--engine", engines, "--publisher", publisher.endpoint, status=1).json
    assert [outcome["ok"] for outcome in done["engines"]] == [False, True]
    done = program.run("reload", "--engine", engines, "--publisher", publisher.endpoint, "--all-or-none",
                       "--allow-config-change").json
    assert [len(outcome["report"]["config_changes"]) for outcome in done["engines"]] == [1, 0]

"""An engine that is told how its trainer has the weights: started from such a checkpoint, reloaded from its publisher and
from a folder, verified and exported, it serves the bytes of the usual checkpoint; so does an engine without the rules
that starts from the export."""

import json

import safetensors.torch

import foreign
import oracle


def test_an_engine_takes_its_trainers_weights(program, start, checkpoint, tmp_path, assert_serves):
    usual = {version: checkpoint("llama", version) for version in ("a", "b")}
    trainers = {version: foreign.make(folder, tmp_path / version, "rows") for version, folder in usual.items()}
    rules = trainers["a"] / foreign.FILE
    engine = start("serve", "--model", trainers["a"], "--tp", 2, "--quantization", "fp8_per_channel",
                   "--weight-rules", rules)
    assert_serves(engine, usual["a"], "fp8_per_channel")

    publisher = start("publish", "--model", trainers["b"])
    reloaded = program.reload(engine, "--publisher", publisher.endpoint)
    assert {"name": "policy.value_head.weight", "rule": "the policy alone is served"} in reloaded["report"]["skipped"]
    assert_serves(engine, usual["b"], "fp8_per_channel")
    assert program.run("verify", "--engine", engine.endpoint, "--model", trainers["b"]).json["differences"] == []

    program.export(engine, tmp_path / "state")
    second = start("serve", "--model", tmp_path / "state", "--tp", 2, "--quantization", "fp8_per_channel")
    assert_serves(second, usual["b"], "fp8_per_channel")
    assert program.reload(engine, "--model", trainers["a"])["ok"]
    assert_serves(engine, usual["a"], "fp8_per_channel")
    # Without the rules such tensors are nobody's.
    refused = program.run("reload", "--engine", second.endpoint, "--publisher", publisher.endpoint, status=1)
    assert "policy.model" in json.dumps(refused.json)


def test_rules_that_drop_what_the_model_needs_are_refused(program, start, checkpoint, tmp_path, assert_serves):
    """Whatever the checkpoint holds: nothing would write that memory."""
    folder, other = checkpoint("llama", "a"), tmp_path / "trainer"
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"names": [{"prefix": "actor", "to": "model"},
                                           {"suffix": "dropped.q_proj.weight", "drop": "not trained"}]}))
    engine = start("serve", "--model", folder, "--tp", 2, "--weight-rules", rules)
    again = program.reload(engine, "--model", folder)
    assert again["report"]["unused_rules"] == ["prefix actor -> model",
                                               "drop suffix dropped.q_proj.weight: not trained"]

    tensors = oracle.read_tensors(checkpoint("llama", "b"))
    name = "model.layers.1.self_attn.q_proj.weight"
    tensors["model.layers.1.self_attn.dropped.q_proj.weight"] = tensors.pop(name)
    other.mkdir()
    safetensors.torch.save_file(tensors, other / "model.safetensors")
    (other / "config.json").write_text(json.dumps(oracle.read_config(folder)))
    publisher = start("publish", "--model", other)
    for flags in ((), ("--partial",)):
        refused = program.run("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint, *flags, status=1)
        message = refused.json["engines"][0]["error"]["message"]
        assert f"1 missing. Following weights were not initialized from checkpoint: {name}" in message
    assert_serves(engine, folder, "none")

    rules.write_text(json.dumps({"names": [{"suffix": "q_proj.weight", "drop": "not trained"}]}))
    refused = program.run("serve", "--model", folder, "--weight-rules", rules, status=1)
    assert "model.layers.0.self_attn.q_proj.weight" in refused.json["error"]["message"]


def test_rules_that_are_wrong_are_named_before_any_rank_starts(program, checkpoint, tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text('{"transforms": [{"suffix": "a", "squeeze": {"axis": -1}}]}')
    for subcommand in ("serve", "plan"):
        refused = program.run(subcommand, "--model", checkpoint("llama", "a"), "--weight-rules", rules, status=1)
        assert refused.json["error"]["message"] == \
            f"{rules}: transforms[0].squeeze.axis: expected an integer of at least 0, got -1"

"""Engines take versions that hold a part of the model's tensors, from publishers and from folders; layers that they leave out keep
their bytes. What is refused leaves everything as it was."""

import json

import pytest
import safetensors.torch

import oracle

RANKS = 2


@pytest.fixture
def folders(checkpoint, tmp_path):
    """The old checkpoint; attention of another one; both as one; and attention without one of k's."""
    old, new = checkpoint("qwen3", "a"), checkpoint("qwen3", "b")
    part = {name: tensor for name, tensor in oracle.read_tensors(new).items() if ".self_attn." in name}
    lacking = {name: tensor for name, tensor in part.items() if name != "model.layers.1.self_attn.k_proj.weight"}
    made = [old]
    for name, tensors in (("part", part), ("together", oracle.read_tensors(old) | part), ("lacking", lacking)):
        made.append(tmp_path / name)
        made[-1].mkdir()
        safetensors.torch.save_file(tensors, made[-1] / "model.safetensors")
        (made[-1] / "config.json").write_text(json.dumps(oracle.read_config(old)))
    return made


@pytest.mark.parametrize("policy", ["staged", "undo", "in_place"])
def test_what_a_version_leaves_out_is_kept(policy, folders, program, start, tmp_path):
    old, part, together, lacking = folders
    recipe = "fp8_per_channel"
    engine = start("serve", "--model", old, "--tp", RANKS, "--quantization", recipe, "--commit", policy)
    count = iter(range(100))

    def assert_serves(folder):
        out = tmp_path / f"export-{next(count)}"
        program.export(engine, out)
        for rank in range(RANKS):
            expected = oracle.served_tensors(folder, RANKS, rank, recipe)
            assert oracle.differences(oracle.read_export(out, rank), expected) == []

    publisher = start("publish", "--model", part)
    refused = program.run("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint, status=1)
    assert "missing" in refused.json["engines"][0]["error"]["message"]
    assert_serves(old)

    done = program.reload(engine, "--publisher", publisher.endpoint, "--partial")
    assert done["version"] == publisher.version and done["report"]["layers_kept"] > 0
    assert {"model.embed_tokens", "model.layers.0-1.mlp.down_proj"} <= set(done["report"]["kept"])
    assert not any("self_attn" in layers for layers in done["report"]["kept"])
    assert_serves(together)
    assert program.run("verify", "--engine", engine.endpoint, "--model", together).json["equal"]
    assert len(program.generate(engine, (3, 11, 4), "--max-new", 4)["tokens"]) == 4

    listed = "model.embed_tokens,model.norm,lm_head,model.layers.0,model.layers.1.mlp"
    refused = program.run("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint, "--partial",
                          "--may-keep", listed, status=1)
    assert "model.layers.1.input_layernorm" in refused.json["engines"][0]["error"]["message"]
    refused = program.run("reload", "--engine", engine.endpoint, "--model", lacking, "--partial", status=1)
    assert "model.layers.1.self_attn.k_proj.weight" in refused.json["engines"][0]["error"]["message"]
    assert_serves(together)

    assert program.run("reload", "--engine", engine.endpoint).json["ok"]  # what it came from
    assert_serves(old)
    assert program.reload(engine, "--model", part, "--partial")["ok"]
    assert_serves(together)

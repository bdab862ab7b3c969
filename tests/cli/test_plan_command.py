"""`layercast plan` keeps to docs/cli.md, and says what would not fit. That its placements are right, tests/end_to_end
shows by carrying them out."""

import json
import os
import subprocess

import pytest
import safetensors.torch
import torch

PROGRAM = os.environ["LAYERCAST_PROGRAM"]
CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 100, "hidden_size": 16,
          "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
          "torch_dtype": "float32", "tie_word_embeddings": True}


def run(*arguments, status):
    done = subprocess.run([PROGRAM, "plan", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, done
    return done


def run_json(*arguments, status):
    done = run(*arguments, "--json", status=status)
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout
    return json.loads(lines[0]), done.stderr


def tensors():
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (100, 16), "model.norm.weight": (16,),
              layer + "input_layernorm.weight": (16,), layer + "post_attention_layernorm.weight": (16,),
              layer + "self_attn.q_proj.weight": (16, 16), layer + "self_attn.q_proj.bias": (16,),
              layer + "self_attn.k_proj.weight": (8, 16), layer + "self_attn.k_proj.bias": (8,),
              layer + "self_attn.v_proj.weight": (8, 16), layer + "self_attn.v_proj.bias": (8,),
              layer + "self_attn.o_proj.weight": (16, 16), layer + "mlp.gate_proj.weight": (24, 16),
              layer + "mlp.up_proj.weight": (24, 16), layer + "mlp.down_proj.weight": (16, 24)}
    return {name: torch.ones(shape) for name, shape in shapes.items()}


@pytest.fixture
def model(tmp_path):
    def write(weights, **config):
        (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **config}))
        safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
        return tmp_path
    return write


def test_a_config_without_architectures_is_named(model):
    folder = model(tensors(), architectures=[])
    assert f"{folder}: No model architectures are specified" in run("--model", folder, status=1).stderr


def test_the_fields_of_a_plan(model):
    weights = tensors()
    weights["lm_head.weight"] = torch.ones(100, 16)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    weights["model.norm.weight"] = torch.ones(16, dtype=torch.bfloat16)
    plan, errors = run_json("--model", model(weights), "--tp", 2, "--rank", 1, status=0)
    assert errors == ""
    assert (plan["tp"], plan["rank"], plan["problems"]) == (2, 1, [])
    key = next(p for p in plan["placements"] if p["tensor"].endswith("k_proj.weight"))
    assert key == {"tensor": "model.layers.0.self_attn.k_proj.weight", "dtype": "f32", "shape": [8, 16],
                   "read_as": [8, 16], "source": [[4, 8], [0, 16]], "layer": "model.layers.0.self_attn.qkv_proj",
                   "class": "QKVParallelLinear", "parameter": "weight", "destination": [[8, 12], [0, 16]], "shard": "k",
                   "transposed": False, "interleaved": False, "rules": []}
    assert {s["name"]: s["rule"] for s in plan["skipped"]} == {
        "lm_head.weight": "tied to model.embed_tokens.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq": "rotary_emb.inv_freq is computed, not loaded"}
    assert plan["cast"] == [{"name": "model.norm.weight", "from": "bf16", "to": "f32"}]


def test_a_stage_of_a_pipeline(model):
    weights = tensors()
    for name in list(weights):
        if name.startswith("model.layers.0."):
            weights[name.replace("layers.0", "layers.1")] = weights[name].clone()
    weights["lm_head.weight"] = torch.ones(100, 16)
    folder = model(weights, num_hidden_layers=2, tie_word_embeddings=False)
    plan, _ = run_json("--model", folder, "--pp", 2, "--stage", 1, status=0)
    assert (plan["pp"], plan["stage"], plan["skipped"], plan["problems"]) == (2, 1, [], [])
    elsewhere = {tensor["name"]: tensor["held_by"] for tensor in plan["elsewhere"]}
    assert elsewhere == {name: "pipeline stage 0" for name in weights
                         if name.startswith("model.layers.0.") or name == "model.embed_tokens.weight"}
    assert {p["tensor"] for p in plan["placements"]} == weights.keys() - elsewhere.keys()
    said = run("--model", folder, "--pp", 2, "--stage", 1, status=0).stdout.splitlines()
    assert "elsewhere: model.embed_tokens.weight: pipeline stage 0" in said
    assert said[-1].endswith("on rank 0 of 1, stage 1 of 2")
    whole, _ = run_json("--model", folder, status=0)
    assert (whole["pp"], whole["stage"], whole["elsewhere"]) == (1, 0, [])


@pytest.mark.parametrize("flags, words", [
    (["--pp", 3], "pp_size 3 exceeds num_hidden_layers 1"),
    (["--pp", 1, "--pp-layers", "2"], "from 1 to num_hidden_layers 1 layers on a stage, got 2"),
    (["--pp", 1, "--pp-layers", "1,1"], "for each of pp_size 1 stages, got 2"),
])
def test_stages_that_cannot_be(model, flags, words):
    said, _ = run_json("--model", model(tensors()), *flags, status=1)
    assert words in said["error"]["message"]


def test_text_for_people(model):
    said = run("--model", model(tensors()), status=0).stdout
    assert ("model.layers.0.mlp.up_proj.weight [0:24, 0:16] -> model.layers.0.mlp.gate_up_proj.weight [24:48, 0:16]  "
            "MergedColumnParallelLinear shard 1") in said.splitlines()


def test_everything_that_is_wrong_is_named_together(model):
    weights = tensors()
    del weights["model.layers.0.self_attn.k_proj.bias"]
    weights["model.layers.0.self_attn.o_proj.bias"] = torch.ones(16)
    weights["model.layers.0.mlp.up_proj.weight"] = torch.ones(24, 8)
    weights["model.layers.0.self_attn.qkv_proj.weight"] = torch.ones(32, 16)
    plan, errors = run_json("--model", model(weights), status=1)
    kinds = sorted(problem.split(":")[0] for problem in plan["problems"])
    assert kinds == ["does not fit", "missing", "repeated", "repeated", "repeated", "unexpected"]
    assert "missing: model.layers.0.self_attn.k_proj.bias" in plan["problems"]
    assert ("does not fit: layer model.layers.0.mlp.gate_up_proj: 'model.layers.0.mlp.up_proj.weight' expected "
            "[24, 16] f32, got [24, 8] f32") in plan["problems"]
    assert plan["error"]["code"] == "invalid_argument" and "5 more problems" in plan["error"]["message"]
    assert len(errors.splitlines()) == 1
    assert len(plan["placements"]) > 5  # what could be placed is shown all the same
    said = run("--model", model(weights), status=1)
    assert said.stderr.splitlines() == ["layercast plan: 6 problems:", *(f"  {problem}" for problem in plan["problems"])]
    assert all(problem not in said.stdout for problem in plan["problems"]) and " -> model.norm.weight" in said.stdout


def test_everything_that_a_wrong_model_lacks_is_listed(model):
    first = "model.layers.0."
    plan, _ = run_json("--model", model(tensors(), num_hidden_layers=4), status=1)
    lacking = [f"missing: {name.replace(first, f'model.layers.{layer}.')}" for layer in (1, 2, 3)
               for name in tensors() if name.startswith(first)]
    assert sorted(plan["problems"]) == sorted(lacking)


def test_rules_that_drop_what_is_needed_or_touch_nothing_are_named(model):
    folder = model(tensors())
    rules = folder / "rules.json"
    rules.write_text(json.dumps({"names": [{"suffix": "k_proj.bias", "drop": "not trained"},
                                           {"prefix": "policy", "to": ""}]}))
    plan, _ = run_json("--model", folder, "--weight-rules", rules, status=1)
    assert plan["problems"] == ["missing: model.layers.0.self_attn.k_proj.bias"]
    assert plan["unused_rules"] == ["prefix policy -> "]
    rules.write_text(json.dumps({"names": [{"prefix": "policy", "to": ""}]}))
    said = run("--model", folder, "--weight-rules", rules, status=0).stdout.splitlines()
    assert "warning: weight rule 'prefix policy -> ' touches no tensor" in said
    assert run_json("--model", folder, status=0)[0]["unused_rules"] == []


def test_layers_that_a_partial_version_leaves_out_are_listed_and_may_be_restricted(model):
    weights = {name: tensor for name, tensor in tensors().items() if "self_attn" in name}
    folder = model(weights)
    plan, _ = run_json("--model", folder, "--partial", status=0)
    assert plan["kept"] == ["model.embed_tokens", "model.layers.0.input_layernorm",
                            "model.layers.0.post_attention_layernorm", "model.layers.0.mlp.gate_up_proj",
                            "model.layers.0.mlp.down_proj", "model.norm"]
    listed = "model.embed_tokens,model.norm,model.layers.0.mlp,model.layers.0.input_layernorm"
    plan, _ = run_json("--model", folder, "--partial", "--may-keep", listed, status=1)
    assert plan["problems"] == ["missing: all of model.layers.0.post_attention_layernorm, which may not be kept"]
    run("--model", folder, "--partial", "--may-keep", "model", status=0)
    run("--model", folder, "--may-keep", "model", status=2)


def test_scales_of_caches_are_skipped_by_a_rule_or_held(model):
    weights = tensors()
    attention = "model.layers.0.self_attn"
    weights[f"{attention}.k_proj.k_scale"] = torch.tensor(0.5)
    weights[f"{attention}.v_proj.v_scale"] = torch.tensor(0.25)
    folder = model(weights)
    plan, _ = run_json("--model", folder, status=0)
    skipped = next(s for s in plan["skipped"] if s["name"] == f"{attention}.k_proj.k_scale")
    assert skipped["rule"] == "scales of a key/value cache, which this engine does not have"
    assert skipped["rules"] == ["suffix self_attn.k_proj.k_scale -> self_attn.attn.k_scale"]
    plan, _ = run_json("--model", folder, "--kv-cache-scales", status=0)
    placed = {p["tensor"]: (p["layer"], p["parameter"]) for p in plan["placements"]}
    assert placed[f"{attention}.v_proj.v_scale"] == (f"{attention}.attn", "v_scale")
    v_scale = weights.pop(f"{attention}.v_proj.v_scale")
    plan, _ = run_json("--model", model(weights), "--kv-cache-scales", status=0)  # one of keys alone is that of both
    placed = {(p["tensor"], p["parameter"]) for p in plan["placements"]}
    assert {(f"{attention}.k_proj.k_scale", f"{name}_scale") for name in "kv"} <= placed
    del weights[f"{attention}.k_proj.k_scale"]
    alone = {**weights, f"{attention}.v_proj.v_scale": v_scale}
    plan, _ = run_json("--model", model(alone), "--kv-cache-scales", status=1)
    assert plan["problems"] == [f"missing: {attention}.attn.k_scale"]
    run_json("--model", model(weights), "--kv-cache-scales", status=0)  # then they are 1


def test_scales_of_activations_are_skipped_by_a_rule_or_held(model):
    weights = tensors()
    layer = "model.layers.0.mlp.down_proj"
    weights[f"{layer}.weight"] = torch.ones(16, 24).to(torch.float8_e4m3fn)
    weights[f"{layer}.weight_scale"], weights[f"{layer}.input_scale"] = torch.tensor(0.5), torch.tensor(0.25)
    folder = model(weights, quantization_config={"quant_method": "fp8"})
    plan, _ = run_json("--model", folder, "--quantization", "fp8_per_tensor", status=0)
    skipped = {s["name"]: s["rule"] for s in plan["skipped"]}
    assert skipped[f"{layer}.input_scale"] == "scales of activations, which this engine does not have"
    plan, _ = run_json("--model", folder, "--quantization", "fp8_per_tensor", "--input-scales", status=1)
    assert (f"{layer}.input_scale", "input_scale") in {(p["tensor"], p["parameter"]) for p in plan["placements"]}
    assert plan["problems"] == [f"missing: model.layers.0.{other}.input_scale" for other in
                                ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj")]


def test_a_layer_that_is_quantized_already(model):
    weights = tensors()
    name = "model.layers.0.mlp.down_proj.weight"
    weights[name] = torch.ones(16, 24).to(torch.float8_e4m3fn)
    weights[f"{name}_scale"] = torch.tensor(0.5)
    folder = model(weights, quantization_config={"quant_method": "fp8"})
    run_json("--model", folder, "--quantization", "checkpoint", status=0)
    plan, _ = run_json("--model", folder, "--quantization", "fp8_per_tensor", status=0)
    placed = {p["tensor"]: (p["dtype"], p["parameter"]) for p in plan["placements"]}
    assert placed[name] == ("f8_e4m3", "weight") and placed[f"{name}_scale"] == ("f32", "weight_scale")
    refused, _ = run_json("--model", folder, status=1)
    assert "expected weights for none, got codes of fp8_per_tensor" in refused["error"]["message"]
    plan, _ = run_json("--model", folder, "--requantize", status=0)
    placed = {p["tensor"]: p["dtype"] for p in plan["placements"]}
    assert placed[name] == "f32" and f"{name}_scale" not in placed


@pytest.mark.parametrize("config, flags, words", [
    ({"architectures": ["MambaForCausalLM"]}, [], "Supported architectures: {DeepseekV2, DeepseekV3, "),
    ({}, ["--tp", 3], "num_attention_heads 4 is not divisible by tp_size 3"),
    ({"hidden_size": 0}, [], "hidden_size: expected an integer from 1"),
    ({}, ["--quantization", "nvfp4"], "'model.layers.0.mlp.down_proj.weight': nvfp4 takes columns in blocks of 16, got 24"),
])
def test_a_model_that_cannot_be(model, config, flags, words):
    said, errors = run_json("--model", model(tensors(), **config), *flags, status=1)
    assert words in said["error"]["message"] and words in errors


def test_wrong_usage(model, tmp_path):
    folder = model(tensors())
    run("--model", folder, "--tp", 2, "--rank", 2, status=2)
    run("--model", folder, "--pp", 2, "--stage", 2, status=2)
    run("--model", folder, "--quantization", "fp7", status=2)
    run("--tp", 2, status=2)
    assert run_json("--model", tmp_path / "nowhere", status=1)[0]["error"]["code"] == "not_found"


def test_a_publisher_that_is_not_there_is_named(model):
    said, _ = run_json("--model", model(tensors()), "--publisher", "tcp://127.0.0.1:9", "--timeout", 0.3, status=1)
    assert said["error"]["code"] in ("unavailable", "deadline_exceeded")
    assert "tcp://127.0.0.1:9" in said["error"]["message"]

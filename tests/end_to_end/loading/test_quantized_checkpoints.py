"""Engines whose checkpoints are quantized already. Their layers change form when a version in full precision comes, and
change back with the next quantized one; the buffers and what the commit policy keeps beside them stay what they were.

The bytes of every form are those of tests/oracle/test_quantized_checkpoints.py; here they go through real engines."""

import pytest
import safetensors.torch
import torch

import mixed_checkpoints
import mxfp4_checkpoints
import oracle
import quantized_checkpoints
import quantized_forms
from quantized_forms import FORMS

RANKS = 2


@pytest.fixture
def assert_exports(program, tmp_path):
    count = iter(range(10**6))

    def check(engine, expected_of_rank):
        out = tmp_path / f"export-{next(count)}"
        program.export(engine, out)
        for rank in range(RANKS):
            lines = oracle.differences(oracle.read_export(out, rank), expected_of_rank(rank))
            assert not lines, f"rank {rank}:\n" + "\n".join(lines)

    return check


def quantized_by_the_engine(folder, form, rank):
    """What it makes of weights in full precision: layers that the form leaves out stay so."""
    served = oracle.served_tensors(folder, RANKS, rank, form.recipe)
    plain = oracle.served_tensors(folder, RANKS, rank, "none")

    def left_out(name):
        return any(part in name for part in form.left_out)

    return ({name: tensor for name, tensor in served.items() if not left_out(name)}
            | {name: tensor for name, tensor in plain.items() if left_out(name)})


# Blocks of the MLP straddle two ranks; parts of fused layers have a scale each; experts, in blocks and with one scale for
# each tensor, and tensors that derive from codes.
@pytest.mark.parametrize("policy", ["staged", "in_place"])
@pytest.mark.parametrize("spec, name, flags", [("qwen3_wide", "deepseek", ("--requantize",)), ("qwen3_wide", "fp8", ()),
                                               ("qwen3_wide", "int8 channels", ()), ("qwen3_wide", "nvfp4", ()),
                                               ("deepseek_v3_wide", "nvfp4 packed", ()),
                                               ("deepseek_v3_wide", "deepseek", ()), ("deepseek_v3_wide", "fp8", ())])
def test_codes_then_full_precision_then_codes_again(spec, name, flags, policy, program, start, checkpoint, tmp_path,
                                                    assert_exports):
    form = FORMS[name]
    codes = quantized_forms.make(checkpoint(spec, "a"), tmp_path / "codes", name)
    plain = checkpoint(spec, "b")

    def of_codes(rank):
        return quantized_checkpoints.served_tensors(codes, name, RANKS, rank, form.recipe)

    engine = start("serve", "--model", codes, "--tp", RANKS, "--quantization", form.recipe, "--commit", policy, *flags)
    first = program.status(engine)
    assert_exports(engine, of_codes)
    assert program.run("verify", "--engine", engine.endpoint, "--model", codes).json["equal"]

    publisher = start("publish", "--model", plain)
    done = program.reload(engine, "--publisher", publisher.endpoint)
    assert done["version"] == publisher.version
    assert_exports(engine, lambda rank: quantized_by_the_engine(plain, form, rank))

    done = program.reload(engine, "--model", codes)
    assert done["version"] == first["version"]
    assert_exports(engine, of_codes)
    assert len(program.generate(engine, (3, 11, 4), "--max-new", 4)["tokens"]) == 4
    if flags:  # a publisher's are not made anew
        return
    for mode in ("snapshot", "stream"):
        program.reload(engine, "--publisher", publisher.endpoint)
        of_mode = start("publish", "--model", codes, "--mode", mode)
        assert program.reload(engine, "--publisher", of_mode.endpoint)["version"] == of_mode.version
        assert_exports(engine, of_codes)


def test_scales_of_activations_and_caches_are_held_reloaded_and_lent(program, start, checkpoint, tmp_path, assert_exports):
    holds = ("input_scales", "kv_cache_scales")
    flags = ("--tp", RANKS, "--quantization", "fp8_per_tensor", "--input-scales", "--kv-cache-scales")
    first, second = (quantized_forms.make(checkpoint("qwen3_wide", version), tmp_path / version, "fp8")
                     for version in "ab")
    tensors = oracle.read_tensors(second)
    attention = "model.layers.1.self_attn"
    of_caches = {f"{attention}.k_proj.k_scale": torch.tensor(0.25), f"{attention}.v_proj.v_scale": torch.tensor(3.0)}
    safetensors.torch.save_file(tensors | of_caches, second / "model.safetensors")

    def of(folder):
        return lambda rank: quantized_checkpoints.served_tensors(folder, "fp8", RANKS, rank, "fp8_per_tensor", holds)

    engine = start("serve", "--model", first, *flags)
    assert_exports(engine, of(first))
    assert program.reload(engine, "--model", second)["ok"]
    assert_exports(engine, of(second))
    assert program.run("verify", "--engine", engine.endpoint, "--model", second).json["equal"]
    assert len(program.generate(engine, (3, 11, 4), "--max-new", 4)["tokens"]) == 4
    borrower = start("serve", "--model", first, "--load-format", "remote", "--from-engine", engine.endpoint, *flags)
    assert_exports(borrower, of(second))
    assert program.reload(engine, "--model", first)["ok"]
    assert_exports(engine, of(first))


def test_what_cannot_be_served_as_it_is_ends_serve_with_the_numbers(program, checkpoint, tmp_path):
    codes = quantized_forms.make(checkpoint("qwen3_wide", "a"), tmp_path / "codes", "deepseek")
    refused = program.run("serve", "--model", codes, "--tp", RANKS, "--quantization", "fp8_per_block", status=1)
    message = refused.json["error"]["message"]
    assert "expected whole blocks of 128 rows of 'gate_proj' on each of 2 ranks" in message and "requantize" in message


def test_mxfp4_experts_then_a_trainers_then_mxfp4_again(program, start, checkpoint, tmp_path, assert_exports):
    packed, plain = mxfp4_checkpoints.make_mxfp4(checkpoint("gpt_oss_blocks", "a"), tmp_path / "mxfp4")
    recipe = "fp8_per_channel"

    def of(folder):
        return lambda rank: mxfp4_checkpoints.with_experts_alone_quantized(folder, RANKS, rank, recipe)

    engine = start("serve", "--model", packed, "--tp", RANKS, "--quantization", recipe, "--requantize")
    assert_exports(engine, of(plain))
    trained = checkpoint("gpt_oss_blocks", "b")
    assert program.reload(engine, "--publisher", start("publish", "--model", trained).endpoint)["ok"]
    assert_exports(engine, of(trained))
    assert program.reload(engine, "--model", packed)["ok"]
    assert_exports(engine, of(plain))
    assert len(program.generate(engine, (3, 11, 4), "--max-new", 4)["tokens"]) == 4
    refused = program.run("serve", "--model", packed, "--tp", RANKS, "--quantization", recipe, status=1)
    assert "got codes of mxfp4" in refused.json["error"]["message"]


def test_mxfp4_experts_as_they_are_then_a_trainers_then_they_again(program, start, checkpoint, tmp_path, assert_exports):
    packed, plain = mxfp4_checkpoints.make_mxfp4(checkpoint("gpt_oss_blocks", "a"), tmp_path / "mxfp4")

    def of_blocks(rank):
        return mxfp4_checkpoints.with_experts_in_blocks(packed, plain, RANKS, rank)

    engine = start("serve", "--model", packed, "--tp", RANKS, "--quantization", "mxfp4")
    first = program.status(engine)
    assert_exports(engine, of_blocks)
    trained = checkpoint("gpt_oss_blocks", "b")
    assert program.reload(engine, "--publisher", start("publish", "--model", trained).endpoint)["ok"]
    assert_exports(engine, lambda rank: mxfp4_checkpoints.with_experts_alone_quantized(trained, RANKS, rank, "mxfp4"))
    assert program.reload(engine, "--publisher", start("publish", "--model", packed).endpoint)["ok"]
    assert_exports(engine, of_blocks)
    assert program.reload(engine, "--model", packed)["version"] == first["version"]
    assert program.run("verify", "--engine", engine.endpoint, "--model", packed).json["equal"]
    assert len(program.generate(engine, (3, 11, 4), "--max-new", 4)["tokens"]) == 4


def test_each_layer_in_its_own_form_then_a_trainers_weights(program, start, checkpoint, tmp_path, assert_exports):
    forms = {"self_attn": "compressed channels", "mlp": "nvfp4 packed"}
    (_, attention), (_, rest) = ((form, FORMS[form].config["config_groups"]["group_0"]) for form in forms.values())
    config = {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
              "config_groups": {"attention": {**attention, "targets": ["re:.*self_attn"]}, "rest": rest}}
    codes = mixed_checkpoints.make(checkpoint("deepseek_v3_wide", "a"), tmp_path / "codes", forms, config)
    plain = checkpoint("deepseek_v3_wide", "b")

    def of(folder):
        return lambda rank: mixed_checkpoints.served_tensors(folder, forms, RANKS, rank, "checkpoint")

    engine = start("serve", "--model", codes, "--tp", RANKS, "--quantization", "checkpoint")
    assert_exports(engine, of(codes))
    assert program.reload(engine, "--publisher", start("publish", "--model", plain).endpoint)["ok"]
    assert_exports(engine, of(plain))
    assert len(program.generate(engine, (3, 11, 4), "--max-new", 4)["tokens"]) == 4
    assert program.reload(engine, "--model", codes)["ok"]
    assert program.run("verify", "--engine", engine.endpoint, "--model", codes).json["equal"]


def test_a_plan_refuses_the_scales_that_an_engine_would(program, checkpoint, tmp_path):
    codes = quantized_forms.make(checkpoint("qwen3_wide", "a"), tmp_path / "codes", "deepseek")
    name = "model.layers.1.mlp.up_proj.weight_scale_inv"
    tensors = safetensors.torch.load_file(codes / "model.safetensors")
    safetensors.torch.save_file({**tensors, name: tensors[name].to(torch.uint8)}, codes / "model.safetensors")
    for command in ("plan", "serve"):
        message = program.run(command, "--model", codes, "--requantize", status=1).json["error"]["message"]
        assert f"'{name}' expected [3, 2] f32, got [3, 2] u8" in message, message

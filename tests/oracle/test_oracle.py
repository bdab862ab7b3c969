"""The oracle is checked too: by published vectors of sharding, by values worked out by hand, and by putting shards
together again."""

import math

import pytest
import torch

import checkpoints
import disk_names
import oracle
import recipes
import shards


def bounds(kept):
    return kept.start, kept.stop


# Sharding.


def test_grouped_query_heads_are_repeated_when_there_are_more_ranks():
    # 8 heads, 2 key/value heads, head_dim 4, 4 ranks.
    assert [bounds(shards.shard(32, 4, r)) for r in range(4)] == [(0, 8), (8, 16), (16, 24), (24, 32)]
    assert [bounds(shards.kv_shard(8, 2, 4, r)) for r in range(4)] == [(0, 4), (0, 4), (4, 8), (4, 8)]


def test_rank_3_of_8_of_llama_3_8b():
    assert bounds(shards.shard(32 * 128, 8, 3)) == (1536, 2048)
    assert bounds(shards.kv_shard(8 * 128, 8, 8, 3)) == (384, 512)


def test_value_heads_of_another_size():
    assert bounds(shards.shard(8 * 4, 2, 1)) == (16, 32)
    assert bounds(shards.kv_shard(8 * 2, 8, 2, 1)) == (8, 16)


def test_heads_that_ranks_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="14 is not divisible by 4"):
        shards.shard(14, 4, 0)
    with pytest.raises(ValueError, match="4 is not divisible by 3"):
        shards.kv_shard(12, 3, 4, 0)


def test_merged_columns_of_6_and_4_rows():
    got = [[bounds(shards.shard(size, 2, r)) for size in (6, 4)] for r in range(2)]
    assert got == [[(0, 3), (0, 2)], [(3, 6), (2, 4)]]


@pytest.mark.parametrize("size, padded", [(32001, 32064), (50272, 50304), (128256, 128256), (1003, 1024)])
def test_the_vocabulary_is_padded_to_64(size, padded):
    assert shards.padded_vocabulary(size) == padded


def test_the_last_rank_holds_the_padding():
    got = [shards.vocabulary_shard(100, 4, r) for r in range(4)]
    assert [bounds(rows) for rows, _ in got] == [(0, 32), (32, 64), (64, 96), (96, 100)]
    assert [held for _, held in got] == [32, 32, 32, 32]
    assert shards.vocabulary_shard(32, 4, 3) == (range(32, 32), 16)


# Recipes, on values worked out by hand.


def test_per_tensor_multiplies_by_the_reciprocal_of_the_scale():
    w = torch.tensor([[448.0, -224.0], [1.0, 0.0]])
    got = recipes.quantize("fp8_per_tensor", w, w.abs().amax(), None)
    assert got["weight_scale"].tolist() == [1.0]
    assert got["weight"].float().tolist() == w.tolist()
    assert got["weight"].dtype == torch.float8_e4m3fn


def test_per_tensor_and_per_channel_round_ties_differently():
    # 0.00238037109375 * 448 / 6.5 is 0.1640625, halfway between two FP8 values: to even when divided, but the rounded
    # reciprocal of the scale lifts the product above the tie.
    w = torch.tensor([[6.5, 0.00238037109375]]).bfloat16()
    assert w.tolist() == [[6.5, 0.00238037109375]]
    tensor = recipes.quantize("fp8_per_tensor", w, w.abs().amax(), None)
    channel = recipes.quantize("fp8_per_channel", w, None, w.abs().amax(dim=1))
    assert tensor["weight"].float().tolist() == [[448.0, 0.171875]]
    assert channel["weight"].float().tolist() == [[448.0, 0.15625]]


def test_a_zero_tensor_has_scale_zero_and_no_nan():
    got = recipes.quantize("fp8_per_tensor", torch.zeros(2, 3), torch.tensor(0.0), None)
    assert got["weight_scale"].item() == 0.0
    assert oracle.raw_bytes(got["weight"]).tolist() == [0] * 6


def test_zero_rows_and_blocks_have_the_least_scale():
    row = recipes.quantize("fp8_per_channel", torch.zeros(1, 4), None, torch.zeros(1))
    assert row["weight_scale"].item() == torch.tensor(1.0 / (448 * 512), dtype=torch.float32).item()
    block = recipes.quantize("fp8_per_block", torch.zeros(1, 4), None, None)
    assert block["weight_scale_inv"].item() == (torch.tensor(1e-4) / 448.0).item()


def test_each_block_has_its_own_scale_and_the_last_ones_are_ragged():
    w = torch.ones(130, 200)
    w[129, 199] = 7.0
    w[0, 0] = -14.0
    got = recipes.quantize("fp8_per_block", w, None, None)
    want = torch.tensor([[14.0, 1.0], [1.0, 7.0]]) / 448.0
    assert torch.equal(got["weight_scale_inv"], want)
    assert got["weight"].shape == (130, 200)
    assert got["weight"].float()[0, 0] == -448.0
    assert got["weight"].float()[129, 199] == 448.0
    assert got["weight"].float()[129, 128] == 64.0


def test_power_of_two_scales_are_the_next_power_up():
    w = torch.full((1, 1), 448.0 * 0.75)
    got = recipes.quantize("fp8_per_block", w, None, None, power_of_two=True)
    assert got["weight_scale_inv"].item() == 1.0
    assert got["weight"].float().item() == 320.0  # 336 is halfway between 320 and 352; the even mantissa is 320's
    exact = recipes.quantize("fp8_per_block", torch.full((1, 1), 224.0), None, None, power_of_two=True)
    assert exact["weight_scale_inv"].item() == 0.5


def nearest_e2m1(value):
    """Each code's distance, in Python's numbers: exact."""
    magnitudes = recipes.E2M1.tolist()
    code = min(range(8), key=lambda code: (abs(abs(value) - magnitudes[code]), code % 2))
    return code + (8 if math.copysign(1.0, value) < 0 else 0)


def test_values_of_four_bits_are_the_nearest_and_ties_the_even_ones():
    at = torch.cat([recipes.E2M1, recipes.E2M1_TIES, torch.tensor([1e-45, 7.0, 1e3])])
    values = torch.cat([at, *(torch.nextafter(at, torch.tensor(to)) for to in (torch.inf, -torch.inf)),
                        7 * torch.rand(2000, generator=torch.Generator().manual_seed(1))])
    values = torch.cat([values, -values])
    assert recipes.e2m1(values).tolist() == [nearest_e2m1(value) for value in values.tolist()]
    assert recipes.e2m1(recipes.E2M1_TIES).tolist() == [0, 2, 2, 4, 4, 6, 6]


# Whole checkpoints.


@pytest.mark.parametrize("spec", checkpoints.SPECS)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_all_ranks_put_together_are_the_checkpoint(checkpoint, spec, tp):
    folder = checkpoint(spec, "a")
    config, tensors = disk_names.text_part(oracle.read_config(folder), oracle.read_tensors(folder))
    ranks = [oracle.served_tensors(folder, tp, rank) for rank in range(tp)]
    dtype = ranks[0]["model.norm.weight"].dtype
    apart = disk_names.unfused(config, disk_names.decoder_names(config, tensors))
    source = disk_names.in_served_dtypes(config, apart, dtype)
    assert oracle.differences(put_together(ranks, config), source) == []
    fused = [name for name in tensors if "qkv_proj" in name or "gate_up_proj.weight" in name]
    assert bool(fused) == (config["model_type"] == "phi3")
    stacked = checkpoints.SPECS[spec].stacked or config["model_type"] == "gpt_oss"
    in_one = (".experts.gate_up_proj", ".experts.up_proj")
    assert any(name.endswith(in_one) for name in tensors) == stacked
    if tp == 1:
        assert all(torch.equal(ranks[0][name], tensors[name]) for name in fused)


def put_together(ranks, config):
    """The inverse of sharding and fusion, from the layout alone: what each rank holds of q, k, v, gate, up."""
    tp, heads, kv_heads = len(ranks), config.get("num_attention_heads", len(ranks)), config.get("num_key_value_heads", 1)
    per_rank, replicas = heads // tp, max(1, tp // kv_heads)
    if "linear_num_key_heads" in config:  # each query comes with its gate
        per_rank *= 2
    kv_per_rank = max(1, kv_heads // tp)
    out = {}
    for name in ranks[0]:
        shards = [rank[name] for rank in ranks]
        module, _, suffix = name.rpartition(".")
        if ".linear_attn.in_proj" in name or ".linear_attn.conv1d." in name:
            out.update(put_delta_net_together(name, shards, config))
        elif ".in_proj." in name or ".conv1d." in name:
            out[name] = put_mixer_together(shards, config, ".in_proj." in name)
        elif name.endswith((".A_log", ".D", ".dt_bias", ".mixer.norm.weight", ".up_proj.weight", ".up_proj.bias")):
            out[name] = torch.cat(shards)
        elif suffix in ("W_UK_T", "W_UV", "A"):  # derived: they are what tests of their own say
            assert all(s.shape[0] == shards[0].shape[0] for s in shards)
        elif "fused_qkv_a_proj" in name:
            assert all(torch.equal(s, shards[0]) for s in shards)
            base = module.removesuffix("fused_qkv_a_proj")
            rows = [config["q_lora_rank"], config["kv_lora_rank"] + config["qk_rope_head_dim"]]
            for part, tensor in zip(("q_a_proj", "kv_a_proj_with_mqa"), shards[0].split(rows), strict=True):
                out[f"{base}{part}.{suffix}"] = tensor
        elif name.endswith((".q_proj.weight", ".q_b_proj.weight", ".kv_b_proj.weight")):
            out[name] = torch.cat(shards)
        elif name.endswith("out_proj.weight"):
            out[name] = torch.cat(shards, dim=1)
        elif name.endswith(".sinks") or (name.endswith("q_norm.weight") and config["model_type"] == "minimax_m2"):
            out[name] = torch.cat(shards)
        elif name.endswith("k_norm.weight") and config["model_type"] == "minimax_m2":
            out[name] = torch.cat(shards[::replicas])
            for rank, part in enumerate(shards):
                assert torch.equal(part, shards[rank // replicas * replicas])
        elif "qkv_proj" in name:
            head_dim = shards[0].shape[0] // (per_rank + 2 * kv_per_rank)
            split = [s.split([per_rank * head_dim, kv_per_rank * head_dim, kv_per_rank * head_dim]) for s in shards]
            base = module.removesuffix("qkv_proj")
            out[f"{base}q_proj.{suffix}"] = torch.cat([part[0] for part in split])
            out[f"{base}k_proj.{suffix}"] = torch.cat([part[1] for part in split[::replicas]])
            out[f"{base}v_proj.{suffix}"] = torch.cat([part[2] for part in split[::replicas]])
            for rank, part in enumerate(split):
                assert torch.equal(part[1], split[rank // replicas * replicas][1])
        elif "gate_up_proj" in name:
            base = module.removesuffix("gate_up_proj")
            out[f"{base}gate_proj.{suffix}"] = torch.cat([s.chunk(2)[0] for s in shards])
            out[f"{base}up_proj.{suffix}"] = torch.cat([s.chunk(2)[1] for s in shards])
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            out[name] = torch.cat(shards, dim=1)
        elif module.endswith(".experts"):
            for expert, parts in enumerate(zip(*shards, strict=True)):
                base, kind = f"{module}.{expert}", suffix.partition("_")[2]
                if suffix.startswith("w13") and config["model_type"] == "nemotron_h":
                    out[f"{base}.up_proj.{kind}"] = torch.cat(parts)
                elif suffix.startswith("w13"):
                    out[f"{base}.gate_proj.{kind}"] = torch.cat([part.chunk(2)[0] for part in parts])
                    out[f"{base}.up_proj.{kind}"] = torch.cat([part.chunk(2)[1] for part in parts])
                elif kind == "weight":
                    out[f"{base}.down_proj.weight"] = torch.cat(parts, dim=1)
                else:
                    out[f"{base}.down_proj.bias"] = parts[0]
                    assert not any(part.any() for part in parts[1:])
        elif name in ("model.embed_tokens.weight", "lm_head.weight"):
            whole = torch.cat(shards)
            assert not whole[config["vocab_size"] :].any()
            out[name] = whole[: config["vocab_size"]]
        else:
            assert all(torch.equal(s, shards[0]) for s in shards)
            out[name] = shards[0]
    return out


def put_mixer_together(shards, config, with_gate_and_steps):
    """Rows of a state space's projection: gate, x, B, C, time steps; those of its convolution: x, B, C."""
    heads = config.get("mamba_num_heads") or config["num_heads"]
    inner = heads * (config.get("mamba_head_dim") or config["head_dim"]) // len(shards)
    groups = max(1, config["n_groups"] // len(shards)) * (config.get("ssm_state_size") or config["state_size"])
    sizes = [inner, groups, groups]
    if with_gate_and_steps:
        sizes = [inner, *sizes, heads // len(shards)]
    split = [shard.split(sizes) for shard in shards]
    whole = [list(parts) for parts in zip(*split, strict=True)]
    if config["n_groups"] == 1:  # every rank has all of it
        for part in whole[-3:-1] if with_gate_and_steps else whole[-2:]:
            assert all(torch.equal(of_rank, part[0]) for of_rank in part)
            del part[1:]
    return torch.cat([torch.cat(part) for part in whole])


def put_delta_net_together(name, shards, config):
    """Rows of a gated delta net: whole key heads, or a rank's part of each of q, k, v, z (q, k, v; b, a)."""
    if "in_proj" in name and config["model_type"] == "qwen3_next":
        return {name: torch.cat(shards)}
    key, value = (config[f"linear_num_{kind}_heads"] * config[f"linear_{kind}_head_dim"] // len(shards)
                  for kind in ("key", "value"))
    if "in_proj_ba" in name:
        b, a = (torch.cat(part) for part in zip(*(shard.chunk(2) for shard in shards), strict=True))
        return {name.replace("_ba", "_b"): b, name.replace("_ba", "_a"): a}
    sizes = [key, key, value] + [value] * ("in_proj" in name)
    parts = [torch.cat(part) for part in zip(*(shard.split(sizes) for shard in shards), strict=True)]
    if "in_proj" not in name:
        return {name: torch.cat(parts)}
    return {name.replace("_qkvz", "_qkv"): torch.cat(parts[:3]), name.replace("_qkvz", "_z"): parts[3]}


def test_keys_and_values_are_made_of_the_rows_of_their_heads(checkpoint):
    """Heads 2 and 3 of 4 are rank 1's; a head's rows are those of its key, then those of its value."""
    folder = checkpoint("deepseek_v3_wide", "a")
    weight = oracle.read_tensors(folder)["model.layers.1.self_attn.kv_b_proj.weight"]
    served = oracle.served_tensors(folder, 2, 1)
    for head in (2, 3):
        keys, values = weight[128 * head : 128 * head + 64], weight[128 * head + 64 : 128 * head + 128]
        assert torch.equal(served["model.layers.1.self_attn.kv_b_proj.W_UK_T"][head - 2], keys)
        assert torch.equal(served["model.layers.1.self_attn.kv_b_proj.W_UV"][head - 2], values.T)


def test_decay_is_minus_the_exponential(checkpoint):
    served = oracle.served_tensors(checkpoint("mamba2", "a"), 2, 1)
    a, a_log = (served[f"model.layers.1.mixer.{name}"] for name in ("A", "A_log"))
    assert a.dtype == torch.float32 and torch.allclose(a, -a_log.float().exp())


def spec_for(family, recipe):
    return "qwen3_blocks" if recipe in recipes.COLUMN_UNITS else family


@pytest.mark.parametrize("recipe", ["fp8_per_tensor", "fp8_per_channel", "int8_per_channel", "mxfp8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("family", checkpoints.FAMILIES)
def test_a_quantized_shard_is_the_shard_of_the_quantized_weight(checkpoint, family, recipe):
    folder = checkpoint(spec_for(family, recipe), "a")
    whole = oracle.served_tensors(folder, 1, 0, recipe)
    for name in ("model.layers.1.self_attn.o_proj", "model.layers.1.mlp.down_proj"):
        shards = [oracle.served_tensors(folder, 4, rank, recipe) for rank in range(4)]
        joined = torch.cat([s[f"{name}.weight"].view(torch.uint8) for s in shards], dim=1)
        assert torch.equal(joined, whole[f"{name}.weight"].view(torch.uint8))
        expected = whole[f"{name}.weight_scale"].float()
        if recipe in recipes.COLUMN_UNITS:
            assert torch.equal(torch.cat([s[f"{name}.weight_scale"].float() for s in shards], dim=1), expected)
        else:
            assert all(torch.equal(s[f"{name}.weight_scale"], expected) for s in shards)


def largest_error(recipe, weight, served, name):
    """Half a step of the values at each weight's size, times its scale, and a little."""
    if recipe == "nvfp4":  # steps of 2 above 4, and what a scale that was rounded down cuts off
        scale = (served[f"{name}_scale"].float() * served[f"{name}_scale_2"]).repeat_interleave(16, 1)
        return 1.01 * scale + weight.abs() * (scale == 0)
    if recipe == "int8_per_channel":
        return 0.501 * served[f"{name}_scale"]
    if recipe == "mxfp4":  # steps of 2 above 4, and what is cut off above 6
        scale = torch.exp2(served[f"{name}_scale"].float() - 127).repeat_interleave(32, 1)
        return torch.maximum(scale, weight.abs() - 6 * scale)
    if recipe == "mxfp8":
        scale = torch.exp2(served[f"{name}_scale"].float() - 127).repeat_interleave(32, 1)
    elif recipe == "fp8_per_block":
        scale = served[f"{name}_scale_inv"].repeat_interleave(128, 0).repeat_interleave(128, 1)
        scale = scale[: weight.shape[0], : weight.shape[1]]
    else:
        scale = served[f"{name}_scale"]
    return weight.abs() * 0.0626 + scale * 2.0**-10  # three mantissa bits; subnormals of 2^-9


@pytest.mark.parametrize("recipe", recipes.RECIPES[1:])
@pytest.mark.parametrize("family", checkpoints.FAMILIES)
def test_dequantized_weights_are_near_the_originals(checkpoint, family, recipe):
    folder = checkpoint(spec_for(family, recipe), "a")
    plain = oracle.served_tensors(folder, 2, 1)
    quantized = oracle.served_tensors(folder, 2, 1, recipe)
    checked = 0
    for name, tensor in quantized.items():
        if "weight_scale" in name:
            continue
        weight = recipes.dequantized(quantized, name)
        if weight is None:
            assert torch.equal(tensor, plain[name])
            continue
        error = (weight - plain[name].float()).abs()
        assert (error <= largest_error(recipe, plain[name].float(), quantized, name)).all()
        checked += 1
    assert checked == 2 * 4


@pytest.mark.parametrize("spec", checkpoints.SPECS)
def test_checkpoints_are_what_transformers_reads_back(checkpoint, spec):
    import transformers

    transformers.utils.logging.disable_progress_bar()
    folder = checkpoint(spec, "a")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    logits = model(torch.tensor([[3, 11, 4, 250]])).logits.float()
    assert torch.isfinite(logits).all() and logits.abs().max() < 1e3


def test_checkpoints_are_the_same_every_time_and_their_versions_differ(checkpoint, tmp_path):
    for spec in checkpoints.SPECS:
        a, b = (oracle.read_tensors(checkpoint(spec, version)) for version in checkpoints.VERSIONS)
        assert a.keys() == b.keys()
        for name in a:
            assert not torch.equal(a[name], b[name]), name
    again = checkpoints.make("qwen3", tmp_path, "a")
    for file in again.glob("*.safetensors"):
        assert file.read_bytes() == (checkpoint("qwen3", "a") / file.name).read_bytes()
    assert len(list(again.glob("*.safetensors"))) > 2


def test_differences_names_every_kind():
    a = {"x": torch.zeros(2), "y": torch.zeros(2), "only_a": torch.zeros(1), "z": torch.zeros(3, dtype=torch.bfloat16)}
    b = {"x": torch.zeros(2), "y": torch.tensor([0.0, -0.0]), "only_b": torch.zeros(1), "z": torch.zeros(3)}
    lines = oracle.differences(a, b)
    assert [line.split(":")[0] for line in lines] == ["only_a", "only_b", "y", "z"]
    assert "first at 7: served 0, expected 128" in lines[2]
    assert oracle.differences(a, a) == []

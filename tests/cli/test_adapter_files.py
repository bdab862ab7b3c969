"""Adapters that PEFT saves, as `layercast inspect` reads them: ranks and scales are those of PEFT's own modules."""

import json
import os
import random
import re
import subprocess

import numpy
import peft
import pytest
import safetensors.torch
import torch
import transformers
from peft.tuners.lora.layer import LoraLayer
from peft.utils.other import get_pattern_key

PROGRAM = os.environ["LAYERCAST_PROGRAM"]
SMALL = dict(vocab_size=96, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=64)
EXPERTS = ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"]
PATTERNS = {"q_proj": 4, "layers.1.self_attn.k_proj": 2, "^v_proj": 3, "self_attn.o_proj|mlp.down_proj": 16,
            ".*layers.0.mlp.up_proj": 32, "proj": 5}
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def model(kind):
    torch.manual_seed(0)
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    if kind == "tied":
        return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SMALL, tie_word_embeddings=True))
    if kind == "qwen3_moe":
        return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2,
                                                                            moe_intermediate_size=24))
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**SMALL, num_local_experts=4))


def trained(kind, **how):
    """An adapter with a B that is not zero."""
    wrapped = peft.get_peft_model(model(kind), peft.LoraConfig(**how))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name or "lora_embedding" in name:
                parameter.normal_(std=0.02)
    return wrapped


def inspect(folder, status=0):
    done = subprocess.run([PROGRAM, "inspect", str(folder), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == status, done
    return json.loads(done.stdout)


def of_peft(wrapped):
    """(path, parameter of a stack of experts) -> rank and scale of what PEFT computes with."""
    found = {}
    for name, layer in wrapped.named_modules():
        if isinstance(layer, LoraLayer) and "default" in layer.scaling:
            path = re.sub(r"(\.base_layer)+$", "", name.removeprefix("base_model.model."))
            parameter = getattr(layer, "parameter_name", None)
            parameter = parameter if parameter in ("gate_up_proj", "down_proj") else None
            found[path, parameter] = (layer.r["default"], numpy.float32(layer.scaling["default"]))
    return found


def of_report(report):
    return {(module["module"], module["parameter"]): (module["rank"], numpy.float32(module["scale"])) for module in report["modules"]}


CASES = {
    "plain": ("llama", dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])),
    "defaults": ("llama", dict(target_modules=["q_proj"])),
    "float_alpha": ("llama", dict(r=16, lora_alpha=16 * 2**0.5, use_rslora=True, target_modules=["q_proj"])),
    "odd_ranks": ("llama", dict(r=3, lora_alpha=1, target_modules=["o_proj", "down_proj"])),
    "rslora_patterns": ("llama", dict(r=16, lora_alpha=16, use_rslora=True, rank_pattern={"k_proj": 4}, target_modules=["q_proj", "k_proj"])),
    "golden_patterns": ("llama", dict(r=8, lora_alpha=16, rank_pattern=PATTERNS, target_modules=LINEAR,
                                      alpha_pattern={"layers.0.self_attn.q_proj": 32, "gate_proj": 1})),
    "expressions": ("llama", dict(r=8, target_modules=LINEAR,
                                  rank_pattern={"^model.layers.0.self_attn.[qk]_proj": 3, r"layers\.\d+\.mlp\.(up|gate)_proj": 2,
                                                "q_proj": 7, "self_attn..*_proj": 5},
                                  alpha_pattern={"(?!model)mlp.*": 3, r".*\.1\.self_attn\..+": 2.5})),
    "target_expression": ("llama", dict(r=4, target_modules=r".*\.(0|1)\.mlp\.(up|down)_proj")),
    "all_linear": ("llama", dict(r=4, target_modules="all-linear")),
    "full_paths": ("llama", dict(r=4, target_modules=["model.layers.1.mlp.up_proj", "layers.0.self_attn.q_proj"])),
    "some_layers": ("llama", dict(r=4, target_modules=["q_proj"], layers_to_transform=[1], layers_pattern="layers")),
    "embedding_and_head": ("llama", dict(r=4, lora_alpha=6, target_modules=["embed_tokens", "lm_head", "q_proj"])),
    "tied": ("tied", dict(r=4, target_modules=["embed_tokens"], ensure_weight_tying=True)),
    "orthogonal": ("llama", dict(r=4, init_lora_weights="orthogonal", target_modules=["q_proj"])),
    "gaussian": ("llama", dict(r=4, init_lora_weights="gaussian", target_modules=["q_proj"])),
    "experts": ("qwen3_moe", dict(r=3, lora_alpha=6, target_modules=["q_proj"], target_parameters=EXPERTS,
                                  rank_pattern={"experts.gate_up_proj": 5}, alpha_pattern={"down_proj": 12})),
    "gate_up": ("qwen3_moe", dict(r=5, lora_alpha=6, target_modules=[], target_parameters=EXPERTS[1:])),
    "down": ("qwen3_moe", dict(r=5, lora_alpha=6, target_modules=[], target_parameters=EXPERTS[:1], use_rslora=True)),
    "mixtral_all_linear": ("mixtral", dict(r=2, lora_alpha=8, target_modules="all-linear")),
}


@pytest.mark.parametrize("case", CASES)
def test_ranks_and_scales_are_pefts(case, tmp_path):
    kind, how = CASES[case]
    wrapped = trained(kind, **how)
    wrapped.save_pretrained(tmp_path)
    report = inspect(tmp_path)
    expected = of_peft(wrapped)
    assert len(expected) > 0 and expected == of_peft(peft.PeftModel.from_pretrained(model(kind), tmp_path))
    if case == "tied":  # the file has the embedding's factors once more, transposed, as the head's
        assert ["lm_head", "model.embed_tokens"] == [module["module"] for module in report["modules"]]
    if case == "embedding_and_head":
        assert {copy["name"].split(".")[-3] for copy in report["copies"]} == {"embed_tokens", "lm_head"}
    assert of_report(report) == expected
    assert report["zero_modules"] == 0 and report["problems"] == [] and report["unused"] == []
    assert report["peft_version"] == peft.__version__


def test_where_keys_overlap_the_files_order_decides(tmp_path):
    """PEFT sorts the keys as it saves, so it gives a module another scale than it was trained with; so do we."""
    wrapped = trained("llama", target_modules=["q_proj"], alpha_pattern={"q_proj": 2, ".*q_proj": 4})
    wrapped.save_pretrained(tmp_path)
    loaded = of_peft(peft.PeftModel.from_pretrained(model("llama"), tmp_path))
    assert of_report(inspect(tmp_path)) == loaded != of_peft(wrapped)


def test_files_of_torch_hold_the_same(tmp_path):
    wrapped = trained("llama", r=4, target_modules=["q_proj"])
    wrapped.save_pretrained(tmp_path / "new")
    wrapped.save_pretrained(tmp_path / "old")
    tensors = safetensors.torch.load_file(tmp_path / "old" / "adapter_model.safetensors")
    torch.save(tensors, tmp_path / "old" / "adapter_model.bin")
    (tmp_path / "old" / "adapter_model.safetensors").unlink()
    new, old = inspect(tmp_path / "new"), inspect(tmp_path / "old")
    assert new["modules"] == old["modules"] and old["file"] == "adapter_model.bin"


def test_an_adapter_that_nobody_trained_says_so(tmp_path):
    peft.get_peft_model(model("llama"), peft.LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path)
    assert inspect(tmp_path)["zero_modules"] == 2


def test_a_converted_adapter_of_a_moved_base_passes(tmp_path):
    wrapped = peft.get_peft_model(model("llama"), peft.LoraConfig(r=8, lora_alpha=16, init_lora_weights="pissa", target_modules=["q_proj"]))
    wrapped.peft_config["default"].init_lora_weights = True
    wrapped.save_pretrained(tmp_path / "first")
    wrapped.peft_config["default"].init_lora_weights = "pissa"
    wrapped.save_pretrained(tmp_path / "moved")
    wrapped.save_pretrained(tmp_path / "converted", path_initial_model_for_weight_conversion=str(tmp_path / "first"))
    refused = inspect(tmp_path / "moved", status=1)["error"]
    assert refused["code"] == "unsupported" and 'init_lora_weights: ' in refused["message"] and '"pissa"' in refused["message"]
    report = inspect(tmp_path / "converted")
    assert {(module["rank"], module["scale"]) for module in report["modules"]} == {(16, 2.0)}


REFUSED = {
    "use_dora": dict(use_dora=True, target_modules=["q_proj"]),
    "lora_bias": dict(lora_bias=True, target_modules=["q_proj"]),
    "bias": dict(bias="all", target_modules=["q_proj"]),
    "trainable_token_indices": dict(trainable_token_indices=[3, 5], target_modules=["q_proj"]),
    "modules_to_save": dict(modules_to_save=["lm_head", "embed_tokens"], target_modules=["q_proj"]),
    "init_lora_weights": dict(init_lora_weights="olora", target_modules=["q_proj"]),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_is_not_served_is_refused_by_name(field, tmp_path):
    trained("tied" if field == "bias" else "llama", **REFUSED[field]).save_pretrained(tmp_path)
    error = inspect(tmp_path, status=1)["error"]
    assert error["code"] == "unsupported" and field in error["message"]


def test_whole_modules_are_named_one_by_one(tmp_path):
    trained("llama", target_modules=["q_proj"], modules_to_save=["norm"]).save_pretrained(tmp_path)
    message = inspect(tmp_path, status=1)["error"]["message"]
    assert message.count("norm.weight'") == 5
    trained("llama", target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens"]).save_pretrained(tmp_path)
    message = inspect(tmp_path, status=1)["error"]["message"]
    assert ".lm_head.weight'" in message and ".embed_tokens.weight'" in message


def test_another_method_is_refused_by_name(tmp_path):
    peft.get_peft_model(model("llama"), peft.LoHaConfig(target_modules=["q_proj"])).save_pretrained(tmp_path)
    error = inspect(tmp_path, status=1)["error"]
    assert error["code"] == "unsupported" and '"LOHA"' in error["message"]


PIECES = ["q_proj", "k_proj", "self_attn", "mlp", "layers", "0", "1", "11", ".", ".", ".*", r"\.", "^", "|", "(q|k)", "[kq]", r"\d", r"\d+",
          "model", "_proj", "proj", ".+", "?", "$", "(?:a|q)", "[^.]", r"\w", "x{0,2}", "(?!q)", "*"]


def test_keys_match_as_in_python(tmp_path):
    """Keys put together at random, of which each that Python takes gives every module the rank that PEFT would give it."""
    chance = random.Random(17)
    paths = [f"model.layers.{layer}.{name}" for layer in (0, 1, 11) for name in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp")]
    matched = 0
    for trial in range(40):
        patterns = {}
        while len(patterns) < 12:
            key = "".join(chance.choices(PIECES, k=chance.randint(1, 5)))
            try:
                re.compile(rf"(.*\.)?({key})$")
            except re.error:
                continue
            patterns[key] = 2 + len(patterns)
        tensors = {}
        for path in paths:
            rank = patterns.get(get_pattern_key(patterns.keys(), path), 1)
            matched += rank > 1
            tensors |= {f"{path}.lora_A.weight": torch.ones(rank, 2), f"{path}.lora_B.weight": torch.ones(3, rank)}
        folder = tmp_path / str(trial)
        folder.mkdir()
        safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1, "rank_pattern": patterns}))
        report = inspect(folder)
        assert len(report["modules"]) == len(paths), patterns
        unused = {key for key in patterns if not any(re.match(rf"(.*\.)?({key})$", path) for path in paths)}
        assert len([warning for warning in report["warnings"] if "matches no module" in warning]) == len(unused), patterns
    assert matched > 200

"""`layercast inspect` on a folder with a LoRA adapter: what it prints, and when it fails."""

import json

import pytest
import safetensors.torch
import torch

CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "zz_proj"], "base_model_name_or_path": "org/base"}
Q = "base_model.model.model.layers.{}.self_attn.q_proj"


@pytest.fixture
def adapter(tmp_path):
    """Writes an adapter of two modules, changed by `tensors` (None: without) and `config`; returns its folder."""

    def write(tensors=None, **config):
        all_of = {}
        for layer in (0, 1):
            all_of[Q.format(layer) + ".lora_A.weight"] = torch.ones(4, 16)
            all_of[Q.format(layer) + ".lora_B.weight"] = torch.full((8, 4), float(layer), dtype=torch.bfloat16)
        for name, tensor in (tensors or {}).items():
            all_of[name] = tensor
        safetensors.torch.save_file({name: tensor for name, tensor in all_of.items() if tensor is not None},
                                    tmp_path / "adapter_model.safetensors")
        (tmp_path / "adapter_config.json").write_text(json.dumps({**CONFIG, **config}))
        return tmp_path

    return write


def test_a_good_adapter(program, adapter):
    report = program.run("inspect", adapter()).json
    assert [(m["module"], m["rank"], m["scale"], m["zero"]) for m in report["modules"]] == [
        ("model.layers.0.self_attn.q_proj", 4, 2.0, True), ("model.layers.1.self_attn.q_proj", 4, 2.0, False)]
    b = report["modules"][1]["b"]
    assert (b["name"], b["dtype"], b["shape"]) == (Q.format(1) + ".lora_B.weight", "bf16", [8, 4]) and len(b["digest"]) == 32
    assert report["modules"][1]["a"]["shape"] == [4, 16] and report["modules"][1]["experts"] == 0
    assert report["zero_modules"] == 1 and report["unused"] == ["zz_proj"] and report["bytes"] == 2 * (4 * 64 + 8 * 8)
    assert report["file"] == "adapter_model.safetensors" and report["base_model_name_or_path"] == "org/base"
    assert report["problems"] == [] and report["copies"] == [] and "error" not in report


def test_text_for_people(program, adapter):
    text = program.text("inspect", adapter())
    assert "model.layers.0.self_attn.q_proj  rank 4, scale 2.0  A [4, 16] f32, B [8, 4] bf16 (zero)\n" in text
    assert "adapter of 2 modules, 640 bytes, 1 of them with a B of zeros\n" in text
    assert "targeted, without a tensor: zz_proj\n" in text


def test_copies_of_the_base_are_listed(program, adapter):
    name = "base_model.model.lm_head.base_layer.weight"
    report = program.run("inspect", adapter({name: torch.ones(2, 2)})).json
    assert [copy["name"] for copy in report["copies"]] == [name]


def test_each_problem_is_told(program, adapter):
    folder = adapter({Q.format(0) + ".lora_B.weight": None, "k_proj.lora_C.weight": torch.ones(1),
                      Q.format(1) + ".lora_A.weight": torch.full((4, 16), float("nan"))})
    report = program.run("inspect", folder, status=1).json
    said = "\n".join(report["problems"])
    assert "q_proj: expected two factors" in said and "'k_proj.lora_C.weight'" in said and "[0, 0]" in said
    assert len(report["problems"]) == 3 and report["error"]["code"] == "invalid_argument"
    assert report["modules"][0]["a"]["digest"] is None


@pytest.mark.parametrize("config, code, said", [
    ({"use_dora": True}, "unsupported", "use_dora: expected it unset, got true"),
    ({"r": 0}, "invalid_argument", "r: expected an integer"),
    ({"r": 8}, "invalid_argument", "expected rank 8"),
    ({"tomorrow": 1}, "unsupported", "tomorrow: expected no such field, got 1")], ids=str)
def test_a_refused_configuration(program, adapter, config, code, said):
    error = program.run("inspect", adapter(**config), status=1).json["error"]
    assert error["code"] == code and said in error["message"]


def test_tied_factors_that_differ(program, adapter):
    tensors = {"model.embed_tokens.lora_embedding_A": torch.ones(4, 10), "model.embed_tokens.lora_embedding_B": torch.ones(16, 4),
               "lm_head.lora_A.weight": torch.ones(4, 16), "lm_head.lora_B.weight": torch.ones(10, 4)}
    assert program.run("inspect", adapter(tensors, ensure_weight_tying=True)).json["problems"] == []
    tensors["lm_head.lora_B.weight"][3, 1] = 2
    error = program.run("inspect", adapter(tensors, ensure_weight_tying=True), status=1).json["error"]
    assert error["code"] == "unsupported" and "ensure_weight_tying" in error["message"]


def test_what_says_that_it_is_a_checkpoint_is_one(program, adapter):
    report = program.run("inspect", adapter(), "--load-format", "safetensors").json
    assert len(report["tensors"]) == 4


def test_a_missing_file_is_named(program, adapter):
    folder = adapter()
    (folder / "adapter_model.safetensors").unlink()
    error = program.run("inspect", folder, status=1).json["error"]
    assert error["code"] == "not_found" and "adapter_model.safetensors" in error["message"]

"""FP8 as transformers itself makes and calls it. It computes with it on GPUs alone; its own conversion writes these tensors, and its
module says what they are called and which of them there are."""

import json
import types

import pytest
import safetensors.torch
import torch
from transformers import FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import FP8Linear, Fp8Quantize

import oracle
import quantized_checkpoints
from quantized_forms import LINEAR, Form

PER_TENSOR = Form("fp8_per_tensor", "weight_scale_inv", {})
IN_BLOCKS = Form("fp8_per_block", "weight_scale_inv", {})
SCHEMES = {
    "per tensor": (PER_TENSOR, {"weight_block_size": None}),
    "per tensor, static activations": (PER_TENSOR, {"weight_block_size": None, "activation_scheme": "static"}),
    "in blocks": (IN_BLOCKS, {}),
    "in blocks, scales of exponents": (IN_BLOCKS, {"scale_fmt": "ue8m0"}),
}


@pytest.fixture
def written(checkpoint, tmp_path):
    def write(scheme):
        source, folder = checkpoint("qwen3_wide", "a"), tmp_path / "fp8"
        folder.mkdir()
        config = FineGrainedFP8Config(modules_to_not_convert=["lm_head"], **scheme)
        quantize = Fp8Quantize(types.SimpleNamespace(quantization_config=config))
        tensors = {}
        for name, tensor in oracle.read_tensors(source).items():
            module = name.removesuffix(".weight")
            if not module.endswith(LINEAR):
                tensors[name] = tensor
                continue
            made = quantize.convert({name: tensor})
            if config.activation_scheme == "static":
                made[f"{module}.activation_scale"] = torch.tensor(0.01 * (len(tensors) % 29 + 1))
            block = config.weight_block_size
            declared = FP8Linear(tensor.shape[1], tensor.shape[0], block, config.activation_scheme, config.scale_fmt).state_dict()
            assert ({f"{module}.{key}": value.dtype for key, value in declared.items()}
                    == {key: value.dtype for key, value in made.items()})
            tensors |= made
        safetensors.torch.save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({**oracle.read_config(source), "quantization_config": config.to_dict()}))
        return folder

    return write


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_transformers_writes_is_served_as_the_oracle_says(scheme, written, load):
    form, arguments = SCHEMES[scheme]
    folder = written(arguments)
    words = ("input_scales",) if "activation_scheme" in arguments else ()
    for tp, rank, recipe, more in ((1, 0, form.recipe, ()), (1, 0, form.recipe, ("direct",)), (2, 1, "none", ("requantize",)),
                                   (2, 0, "fp8_per_channel", ("requantize", "direct"))):
        expected = quantized_checkpoints.served_tensors(folder, form, tp, rank, recipe, words)
        got = load(folder, tp, rank, recipe, *words, *more)
        assert not isinstance(got, str), got
        assert oracle.differences(got, expected) == []
        if words:  # an engine that has none skips them
            plain = quantized_checkpoints.served_tensors(folder, form, tp, rank, recipe)
            assert oracle.differences(load(folder, tp, rank, recipe, *more), plain) == []

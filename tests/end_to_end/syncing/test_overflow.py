"""A value that the model's dtype cannot hold ends a load with its place in the tensor that the trainer knows, however the
version comes and whichever rank holds it."""

import json

import pytest
import safetensors.torch
import torch

NAME = "model.layers.0.self_attn.k_proj.weight"


@pytest.fixture
def folders(checkpoint, tmp_path):
    """A model in fp16 whose trainer holds bf16: with values that fit, and with one that does not, in the last row."""
    def write(name, value):
        source, folder = checkpoint("llama", "a"), tmp_path / name
        folder.mkdir()
        config = json.loads((source / "config.json").read_text())
        config.pop("dtype", None)
        (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "float16"}))
        tensors = {}
        for file in sorted(source.glob("*.safetensors")):
            tensors |= {key: tensor.to(torch.bfloat16) for key, tensor in safetensors.torch.load_file(file).items()}
        if value is not None:
            tensors[NAME][-1, -1] = value
        safetensors.torch.save_file(tensors, folder / "model.safetensors")
        return folder, list(tensors[NAME].shape)

    good, _ = write("good", None)
    bad, shape = write("bad", 70_000.0)
    place = f"row {shape[0] - 1}, column {shape[1] - 1}"
    return good, bad, f"'{NAME}': {place} holds 70144 (bf16), which is beyond 65504, the largest finite f16"


@pytest.mark.parametrize("recipe", ["none", "fp8_per_tensor", "fp8_per_channel"])
def test_a_value_beyond_fp16_is_named_by_files_snapshots_and_streams(program, start, folders, recipe):
    good, bad, said = folders
    assert said in program.refused("serve", "--model", bad, "--tp", 2, "--quantization", recipe)["message"]
    engine = start("serve", "--model", good, "--tp", 2, "--quantization", recipe)
    served = program.status(engine)["ranks"]
    ways = [("--model", bad)]
    for mode in ("snapshot", "stream"):
        ways.append(("--publisher", start("publish", "--model", bad, "--mode", mode).endpoint))
    for way in ways:
        error = program.reload(engine, *way, status=1)["error"]
        # Of a publisher's scale of a whole weight, the rank that does not hold the value knows the magnitude alone.
        known = said.split(" holds ")[1] if recipe == "fp8_per_tensor" and way[0] == "--publisher" else said
        assert error["code"] == "corrupt" and f"'{NAME}'" in error["message"], (way, error)
        assert known in error["message"], (way, error)
        assert program.status(engine)["ranks"] == served

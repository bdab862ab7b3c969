"""Tiny models made in memory, and what save_pretrained writes of them: the oracle of these tests."""

import pathlib
import tempfile
import zlib

import checkpoints
import safetensors.torch
import torch
import transformers

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
_SMALL = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 67, "num_attention_heads": 4,
          "num_key_value_heads": 2}


def model(spec, dtype=torch.bfloat16, **changes):
    """A model of a spec of checkpoints.py, made smaller. No two of its elements are likely to be equal, and the same
    call gives the same bits in every process."""
    spec = checkpoints.SPECS[spec]
    config = spec.config if "text_config" in spec.config else {**spec.config, **_SMALL}
    made = getattr(transformers, spec.auto_class).from_config(
        transformers.AutoConfig.for_model(spec.family, **{**config, **changes}), dtype=dtype)
    return filled(made)


def vision_tower():
    """A model that holds in two tensors what its checkpoint has in one."""
    return filled(transformers.Dinov2Model(transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, use_swiglu_ffn=True)))


def filled(module):
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point():
                seed = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                tensor.copy_(torch.randn(tensor.shape, generator=seed))
    return module


def saved(module):
    """The tensors that save_pretrained writes, by name."""
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        tensors = {}
        for file in pathlib.Path(folder).glob("*.safetensors"):
            tensors.update(safetensors.torch.load_file(file))
        return {name: tensor.clone() for name, tensor in tensors.items()}


def saved_config(module):
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        return (pathlib.Path(folder) / "config.json").read_text()

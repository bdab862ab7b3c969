"""Small policies of every layout that is tried here, written by transformers and safetensors."""

import json

import torch

_BASE = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
_BASE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": None, "eos_token_id": None}
_HEAD = {"head_dim": 16}
KINDS = {
    "llama": ("Llama", {}),
    "llama_tied": ("Llama", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", _HEAD),
    "gemma2": ("Gemma2", _HEAD | {"query_pre_attn_scalar": 16}),
    "mamba2": ("Mamba2", {"num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 16, "expand": 2}),
}


def policy(kind, seed, folder):
    """A model whose answers depend on its seed, and the folder."""
    import transformers

    name, more = KINDS[kind]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**_BASE | more)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    model.save_pretrained(folder)
    return model, folder


_COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True},
        }
    },
}
_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["lm_head"]}
QUANTIZED = {"compressed_tensors_channel": _COMPRESSED, "fp8_checkpoint": _FP8}


def quantized(form, model, folder):
    """The policy as a checkpoint whose linear layers are FP8: by row, or by tensor."""
    from safetensors.torch import load_file, save_file

    model.save_pretrained(folder)
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith("proj.weight"):
            tensors[name] = tensor
            continue
        amax = tensor.float().abs().amax(1, keepdim=True) if form == "compressed_tensors_channel" else tensor.float().abs().amax()
        scale = amax / 448
        tensors[name] = (tensor.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        tensors[name + "_scale"] = scale
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = QUANTIZED[form]
    (folder / "config.json").write_text(json.dumps(config))
    return folder

"""Checkpoints with draft models, made of what transformers writes: targets that hold draft layers behind their last one
(MTP), which transformers itself leaves out, and EAGLE models in folders of their own."""

import dataclasses
import json
import shutil

import safetensors.torch
import torch

import checkpoints
import oracle

MTP = ("deepseek_v3", "glm4_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe")
DRAFT_VOCABULARY = 301


def _random(name, version, *shape):
    return checkpoints.random_weight(f"draft/{version}/{name}", name, shape).bfloat16()


def _write(folder, config, tensors):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
                                folder / "model.safetensors")
    return folder


def _longer(spec_name, cache, version):
    """The spec with one more layer, which becomes the draft's: (config, tensors, number of that layer)."""
    spec = checkpoints.SPECS[spec_name]
    layers = spec.config["num_hidden_layers"]
    own = {**spec.config, "num_hidden_layers": layers + 1}
    if "layer_types" in own:
        own["layer_types"] = [*own["layer_types"], "full_attention"]
    folder = checkpoints.make(dataclasses.replace(spec, name=f"{spec_name}_longer", config=own), cache, version)
    config = oracle.read_config(folder)
    config["num_hidden_layers"] = layers
    for field in ("layer_types", "mlp_layer_types"):
        if config.get(field):
            config[field] = config[field][:layers]
    for field in ("num_nextn_predict_layers", "num_mtp_layers"):
        config.pop(field, None)
    return config, oracle.read_tensors(folder), layers


def target_with_draft_layers(spec_name, cache, out, version="a"):
    config, tensors, last = _longer(spec_name, cache, version)
    layer, size = f"model.layers.{last}", config["hidden_size"]
    if spec_name.startswith("qwen"):
        tensors = {name.replace(f"{layer}.", "mtp.layers.0."): tensor for name, tensor in tensors.items()}
        tensors["mtp.fc.weight"] = _random("fc", version, size, 2 * size)
        for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
            tensors[f"mtp.{norm}.weight"] = _random(norm, version, size)
    else:
        config["num_nextn_predict_layers"] = 1
        tensors[f"{layer}.eh_proj.weight"] = _random("eh_proj", version, size, 2 * size)
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            tensors[f"{layer}.{norm}.weight"] = _random(norm, version, size)
        # Published checkpoints have these tensors once more here.
        tensors[f"{layer}.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[f"{layer}.shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    return _write(out, config, tensors)


def _llamas_layer(cache, version):
    spec = checkpoints.SPECS["llama"]
    one = dataclasses.replace(spec, name="llama_eagle", config={**spec.config, "num_hidden_layers": 1})
    folder = checkpoints.make(one, cache, version)
    tensors = {name.removeprefix("model."): tensor for name, tensor in oracle.read_tensors(folder).items()}
    return oracle.read_config(folder), tensors


def eagle(cache, out, version="a"):
    config, tensors = _llamas_layer(cache, version)
    for name in ("norm.weight", "lm_head.weight", "layers.0.input_layernorm.weight"):
        del tensors[name]
    tensors["fc.weight"] = _random("fc", version, config["hidden_size"], 2 * config["hidden_size"])
    return _write(out, config, tensors)


def eagle3(cache, out, version="a"):
    config, tensors = _llamas_layer(cache, version)
    size = config["hidden_size"]
    del tensors["embed_tokens.weight"]
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = f"layers.0.self_attn.{name}.weight"
        tensors[weight] = _random(name, version, len(tensors[weight]), 2 * size)
    tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()}
    tensors["midlayer.hidden_norm.weight"] = _random("hidden_norm", version, size)
    tensors["fc.weight"] = _random("fc", version, size, 3 * size)
    tensors["lm_head.weight"] = _random("lm_head", version, DRAFT_VOCABULARY, size)
    tensors["d2t"] = torch.arange(DRAFT_VOCABULARY) * 2 + (version == "b")
    tensors["t2d"] = torch.zeros(config["vocab_size"], dtype=torch.bool)
    config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT_VOCABULARY}
    return _write(out, config, tensors)

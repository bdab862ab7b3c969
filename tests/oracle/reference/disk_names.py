"""A checkpoint's tensors under one set of names and each by itself, however the files of its family have them."""

import re

import torch

STATE_SPACES = ("mamba2", "nemotron_h")
MIXTRAL_BLOCKS = ("mixtral", "minimax_m2")  # families whose mixture is called block_sparse_moe
VISION_TOWERS = ("vision_tower.", "multi_modal_projector.", "visual.")
MIXTRAL_NAMES = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
ROUTING_BIAS = "e_score_correction_bias"
IN_FP32 = (ROUTING_BIAS, ".A_log")  # whatever the model's dtype
ROUTERS_IN_FP32 = ("glm4_moe", "minimax_m2", "nemotron_h")  # families that hold theirs so too
SCALES = ("_scale", ".scale")  # in fp32 likewise
# What checkpoints call the scales of a key/value cache -> what the attention layer's own "attn" does: vLLM's table.
CACHE_SCALES = ((r"\.kv_scale$", r".attn.kv_scale"),
                (r"\.(self_attn|mixer)\.[kv]_proj\.([kv])_scale$", r".\1.attn.\2_scale"),
                (r"\.self_attn\.qk(?:qk)?v_proj\.([kv])_scale$", r".self_attn.attn.\1_scale"),
                (r"\.self_attn\.([kv])_cache\.scale$", r".self_attn.attn.\1_scale"),
                (r"\.([kv])_proj\.output_scale$", r".attn.\1_scale"),
                (r"(?<!\.attn)\.([kv])_scale$", r".attn.\1_scale"))


def text_part(config, tensors):
    """The language model of a vision-language one, under the names that it has alone."""
    text = config.get("text_config", {})
    if text:  # the outer object, or its class, says what is tied
        text = {**text, "tie_word_embeddings": config.get("tie_word_embeddings", config["model_type"] == "gemma3")}
    prefixes = {"language_model.model.": "model.", "model.language_model.": "model.", "language_model.lm_head.": "lm_head."}
    renamed = {}
    for name, tensor in tensors.items():
        if name.removeprefix("model.").startswith(VISION_TOWERS):
            continue
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        renamed[prefixes.get(prefix, "") + name.removeprefix(prefix)] = tensor
    return {**config, **text}, renamed


def decoder_names(config, tensors):
    """Under the names that most decoders have."""
    if config["model_type"] not in STATE_SPACES:
        return tensors
    usual = {"embeddings": "embed_tokens", "norm_f": "norm"}
    renamed = {}
    for name, tensor in tensors.items():
        root, _, rest = name.partition(".")  # backbone, or model as transformers holds it in memory
        part, _, last = rest.partition(".")
        renamed[name if root == "lm_head" else f"model.{usual.get(part, part)}.{last}"] = tensor
    return renamed


def of_gpt_oss(expert, name, values):
    """One expert's part of a stacked tensor: a matrix that is transposed, or a bias; gate and up alternate."""
    suffix = "bias" if name.endswith("_bias") else "weight"
    rows = values if suffix == "bias" else values.T
    if name.startswith("gate_up_proj"):
        return {f"{expert}.gate_proj.{suffix}": rows[0::2], f"{expert}.up_proj.{suffix}": rows[1::2]}
    return {f"{expert}.down_proj.{suffix}": rows}


def one_by_one(config, tensors):
    """Experts under one set of names, whatever the checkpoint's: each with its gate, up and down."""
    apart = {}
    for name, tensor in tensors.items():
        if config["model_type"] in MIXTRAL_BLOCKS:
            name = name.replace(".mlp.", ".block_sparse_moe.")
            name = name.replace(f".block_sparse_moe.{ROUTING_BIAS}", f".block_sparse_moe.gate.{ROUTING_BIAS}")
            for short, own in MIXTRAL_NAMES.items():
                name = name.replace(f".{short}.weight", f".{own}.weight")
        module, _, last = name.rpartition(".")
        if not module.endswith(".experts"):
            apart[name] = tensor
            continue
        for expert, matrix in enumerate(tensor):
            if config["model_type"] == "gpt_oss":
                apart |= of_gpt_oss(f"{module}.{expert}", last, matrix)
            elif last == "gate_up_proj":
                apart[f"{module}.{expert}.gate_proj.weight"], apart[f"{module}.{expert}.up_proj.weight"] = matrix.chunk(2)
            else:
                apart[f"{module}.{expert}.{last}.weight"] = matrix
    return apart


def unfused(config, tensors):
    """What is fused on disk, taken apart: rows of q, k, v and of gate, up; experts."""
    if config["model_type"] in STATE_SPACES:
        return one_by_one(config, tensors)
    queries, keys = (config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    apart = {}
    for name, tensor in one_by_one(config, tensors).items():
        module, _, suffix = name.rpartition(".")
        if module.endswith(".qkv_proj"):
            head = tensor.shape[0] // (queries + 2 * keys)
            parts = tensor.split([queries * head, keys * head, keys * head])
            names = ("q_proj", "k_proj", "v_proj")
        elif module.endswith(".gate_up_proj"):
            parts, names = tensor.chunk(2), ("gate_proj", "up_proj")
        else:
            apart[name] = tensor
            continue
        for part, part_name in zip(parts, names, strict=True):
            apart[f"{module.rpartition('.')[0]}.{part_name}.{suffix}"] = part
    return apart


def cache_scale_names(tensors):
    """The scales of key/value caches under one set of names."""
    renamed = {}
    for name, tensor in tensors.items():
        for pattern, own in CACHE_SCALES:
            if re.search(pattern, name) and ".attn." not in name:
                name = re.sub(pattern, own, name)
        renamed[name] = tensor
    return renamed


def in_served_dtypes(config, tensors, dtype):
    in_fp32 = IN_FP32 + SCALES + ((".gate.weight",) if config["model_type"] in ROUTERS_IN_FP32 else ())

    def served(name):
        return torch.float32 if name.endswith(in_fp32) else dtype

    return {name: tensor.to(served(name)) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def layers_of(config):
    return config.get("num_hidden_layers") or len(config["layers_block_type"])


def draft_names(config, tensors):
    """The draft layers of a target's checkpoint, and of them what is not the target's."""
    renamed = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[0] == "mtp":
            parts[0] = "draft"
        elif parts[:2] == ["model", "layers"] and int(parts[2]) >= layers_of(config):
            parts[0] = "draft"
        else:
            continue
        if parts[-2] not in ("embed_tokens", "head"):
            renamed[".".join(parts)] = tensor
    return renamed

"""The checkpoints of checkpoints.py in other formats, each written as its makers write it: by torch.save, as
Mistral's consolidated files, and as GGUF by the gguf package. Each function takes a checkpoint's folder, and writes
another folder with the weights in its format beside config.json."""

import json
import re
import shutil

import gguf
import safetensors.torch
import torch


def read_all(folder):
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(safetensors.torch.load_file(file))
    return tensors


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def _start(folder, out):
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "config.json", out / "config.json")
    return read_all(folder), config_of(folder)


def write_pt(folder, out, files=1):
    tensors, _ = _start(folder, out)
    names = sorted(tensors)
    weight_map = {}
    for i in range(files):
        file = f"pytorch_model-{i + 1:05d}-of-{files:05d}.bin" if files > 1 else "pytorch_model.bin"
        part = {name: tensors[name] for name in names[i::files]}
        torch.save(part, out / file)
        weight_map.update(dict.fromkeys(part, file))
    if files > 1:
        size = sum(tensor.nbytes for tensor in tensors.values())
        (out / "pytorch_model.bin.index.json").write_text(
            json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}))
    return out


def interleaved(rows, heads):
    """A head's rows r0 r1 ... s0 s1 ... reordered to r0 s0 r1 s1 ..., as in Mistral's and llama.cpp's q and k."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _heads(name, config):
    if re.search(r"\.q_proj\.", name):
        return config["num_attention_heads"]
    return config["num_key_value_heads"] if re.search(r"\.k_proj\.", name) else None


def _renamed(name, table):
    for pattern, replacement in table:
        name = re.sub(pattern, replacement, name)
    return name


_MISTRAL = ((r"^model\.embed_tokens\.", "tok_embeddings."), (r"^model\.norm\.", "norm."), (r"^lm_head\.", "output."),
            (r"^model\.layers\.", "layers."), (r"self_attn\.(.)_proj", r"attention.w\1"),
            (r"\.input_layernorm", ".attention_norm"), (r"\.post_attention_layernorm", ".ffn_norm"),
            (r"mlp\.gate_proj", "feed_forward.w1"), (r"mlp\.down_proj", "feed_forward.w2"),
            (r"mlp\.up_proj", "feed_forward.w3"), (r"block_sparse_moe\.", "feed_forward."))


def rope_theta(config):
    return (config.get("rope_parameters") or config)["rope_theta"]


def write_mistral(folder, out, files=1, said=None):
    """`said` has fields of config.json for params.json that differ from those of the folder's."""
    tensors, config = _start(folder, out)
    consolidated = {}
    for name, tensor in tensors.items():
        heads = _heads(name, config)
        consolidated[_renamed(name, _MISTRAL)] = (interleaved(tensor, heads) if heads else tensor).contiguous()
    names = sorted(consolidated)
    weight_map = {}
    for i in range(files):
        file = f"consolidated-{i + 1:05d}-of-{files:05d}.safetensors" if files > 1 else "consolidated.safetensors"
        part = {name: consolidated[name] for name in names[i::files]}
        safetensors.torch.save_file(part, out / file)
        weight_map.update(dict.fromkeys(part, file))
    if files > 1:
        (out / "consolidated.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    config = config | (said or {})
    params = {"dim": config["hidden_size"], "n_layers": config["num_hidden_layers"],
              "n_heads": config["num_attention_heads"], "n_kv_heads": config["num_key_value_heads"],
              "norm_eps": config["rms_norm_eps"], "rope_theta": (said or {}).get("rope_theta", rope_theta(config))}
    (out / "params.json").write_text(json.dumps(params))
    return out


# The model types whose architecture llama.cpp calls by another name.
_GGUF_ARCHITECTURES = {"mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}


def _gguf_names(architecture, layers):
    """A function from Hugging Face's names to llama.cpp's, by llama.cpp's own table."""
    known = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(known[architecture], layers)

    def of(name):
        found = table.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found, name
        return found

    return of


def _one_by_one(tensors):
    """Splits experts that transformers has stacked, gate over up, into tensors of their own."""
    single = {}
    for name, tensor in tensors.items():
        stack = re.fullmatch(r"(.*\.experts)\.(gate_up|down)_proj", name)
        if not stack:
            single[name] = tensor
            continue
        parts = {"gate": tensor.chunk(2, 1)[0], "up": tensor.chunk(2, 1)[1]} if stack[2] == "gate_up" else {"down": tensor}
        single.update((f"{stack[1]}.{expert}.{part}_proj.weight", rows[expert].contiguous())
                      for part, rows in parts.items() for expert in range(len(rows)))
    return single


def _gguf_tensors(tensors):
    """The tensors as llama.cpp's converter lists them: (name without expert number, names of what is in it, values)."""
    listed = {}
    for name in tensors:
        listed.setdefault(re.sub(r"\.experts\.\d+\.", ".experts.", name), []).append(name)
    for name, of in listed.items():
        if ".experts." in name:
            of.sort(key=lambda expert: int(re.search(r"\.experts\.(\d+)\.", expert)[1]))
            yield name, of, torch.stack([tensors[expert] for expert in of])
        else:
            yield name, of, tensors[name].squeeze() if "shared_expert_gate" in name else tensors[name]


_Types = gguf.GGMLQuantizationType


def gguf_values(tensor, encoding):
    """The values that a tensor has after it was stored in a GGUF file, as a torch tensor."""
    if encoding == "BF16":
        return tensor.to(torch.bfloat16)
    if encoding == "F16":
        return tensor.to(torch.float16)
    values = tensor.to(torch.float32)
    if encoding == "F32":
        return values
    return torch.from_numpy(gguf.dequantize(gguf.quantize(values.numpy(), _Types.Q8_0), _Types.Q8_0))


def encoding_of(name, tensor, encoding):
    """llama.cpp's encoding: one-dimensional tensors stay fp32, and rows not divisible by 32 cannot be Q8_0."""
    if tensor.dim() == 1 or (encoding == "Q8_0" and tensor.shape[-1] % 32):
        return "F32"
    return encoding


def write_gguf(folder, out, encoding, architecture=None, parts=1, said=None):
    """Returns the values that the files hold, by Hugging Face's names. `said` is as in write_mistral."""
    tensors, config = _start(folder, out)
    tensors = _one_by_one(tensors)
    architecture = architecture or _GGUF_ARCHITECTURES.get(config["model_type"], config["model_type"])
    gguf_name = _gguf_names(architecture, config["num_hidden_layers"])
    held = {}
    listed = list(_gguf_tensors(tensors))
    for part in range(parts):
        file = f"model-{part + 1:05d}-of-{parts:05d}.gguf" if parts > 1 else "model.gguf"
        writer = gguf.GGUFWriter(out / file, architecture)
        if parts > 1:
            writer.add_uint16("split.no", part)
            writer.add_uint16("split.count", parts)
            writer.add_int32("split.tensors.count", len(listed) + 1)
        if part == 0:
            says = config | (said or {})
            writer.add_head_count(says["num_attention_heads"])
            writer.add_head_count_kv(says["num_key_value_heads"])
            writer.add_token_list(["<s>", "a", "b"])
            writer.add_layer_norm_rms_eps(says["rms_norm_eps"])
            writer.add_rope_freq_base((said or {}).get("rope_theta", rope_theta(config)))
        else:
            del writer.kv_data[0]["general.architecture"]
        for name, of, tensor in listed[part::parts]:
            kind = encoding_of(name, tensor, encoding)
            held.update((each, gguf_values(tensors[each], kind)) for each in of)
            rows = tensor.to(torch.float32)
            heads = _heads(name, config) if architecture == "llama" else None
            rows = (interleaved(rows, heads) if heads else rows).contiguous().numpy()
            quantized = gguf.quantize(rows, _Types[kind])
            writer.add_tensor(gguf_name(name), quantized, raw_dtype=_Types[kind])
        if part == 0:
            writer.add_tensor("rope_freqs.weight", torch.ones(4).numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return held

"""Checkpoints that compressed-tensors itself writes, as llm-compressor has it do: the library initializes, calculates scales, compresses
and says in config.json what it did. Ours are the names of the modules and which values a scale is of.

make() quantizes every linear layer and expert of a checkpoint but for routers and lm_head by the library's preset schemes.
"""

import json

import safetensors.torch
import torch

import oracle
from quantized_forms import LINEAR

IGNORED = ["lm_head", "re:.*\\.gate$"]
FUSED = {name: parts for parts in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"),
                                   ("q_a_proj", "kv_a_proj_with_mqa")) for name in parts}


def _tree(tensors):
    """Modules of the checkpoint's names: what multiplies is a Linear."""
    root = torch.nn.Module()
    for name, tensor in tensors.items():
        *path, own = name.split(".")
        parent = root
        for part in path:
            if part not in parent._modules:
                is_linear = part == path[-1] and part.endswith((*LINEAR, "lm_head", "gate")) and tensor.dim() == 2
                parent.add_module(part, torch.nn.Linear(1, 1, bias=False) if is_linear else torch.nn.Module())
            parent = parent._modules[part]
        if isinstance(parent, torch.nn.Linear) and own == "weight":
            parent.out_features, parent.in_features = tensor.shape
        parent.register_parameter(own, torch.nn.Parameter(tensor, requires_grad=False))
    return root


def _groups(weight, args):
    """What has one scale each, in the last dimension."""
    rows, columns = weight.shape
    if args.strategy == "tensor":
        return weight.reshape(1, -1)
    if args.strategy == "channel":
        return weight.reshape(rows, 1, columns)
    if args.strategy in ("group", "tensor_group"):
        return weight.reshape(rows, -1, args.group_size)
    high, wide = args.block_structure
    padded = torch.nn.functional.pad(weight, (0, -columns % wide, 0, -rows % high))
    return padded.reshape(padded.shape[0] // high, high, -1, wide).transpose(1, 2).flatten(2)


def _calibrate(root, name, linear):
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    scheme, own = linear.quantization_scheme, name.rpartition(".")[2]
    if hasattr(linear, "weight_global_scale"):  # one for all parts of a layer
        parts = [root.get_submodule(name.removesuffix(own) + part) for part in FUSED.get(own, (own,))]
        every = torch.cat([part.weight.flatten() for part in parts])
        linear.weight_global_scale.data = generate_gparam(every.amin(), every.amax())
    groups = _groups(linear.weight, scheme.weights)
    scale, zero = calculate_qparams(groups.amin(dim=-1), groups.amax(dim=-1), scheme.weights,
                                    getattr(linear, "weight_global_scale", None))
    linear.weight_scale.data = scale.to(linear.weight_scale.dtype)
    linear.weight_zero_point.data = zero.reshape(linear.weight_zero_point.shape)
    number = 0.01 * (len(name) % 7 + 1)  # parts of a layer differ
    if hasattr(linear, "input_scale"):
        linear.input_scale.data = torch.full_like(linear.input_scale, number)
    if hasattr(linear, "input_global_scale"):
        linear.input_global_scale.data = torch.full_like(linear.input_global_scale, 1.0 / number)


def make(source, folder, schemes, edit=lambda scheme: None):
    """The checkpoint `source` in `folder`, quantized by preset schemes, each of a target, which `edit` may change. name -> tensor: what
    the library makes of what it wrote, in full precision."""
    from compressed_tensors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme

    folder.mkdir(parents=True)
    root = _tree(oracle.read_tensors(source))
    groups = {f"group_{i}": preset_name_to_scheme(scheme, [target]) for i, (target, scheme) in enumerate(schemes.items())}
    for group in groups.values():
        edit(group)
    apply_quantization_config(root, QuantizationConfig(config_groups=groups, ignore=IGNORED), show_progress=False)
    linears = [(name, linear) for name, linear in root.named_modules() if hasattr(linear, "quantization_scheme")]
    for name, linear in linears:
        _calibrate(root, name, linear)
    compressor = ModelCompressor.from_pretrained_model(root)
    compressor.compress_model(root)
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in root.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(oracle.read_config(source)))
    compressor.update_config(folder)
    compressor.decompress_model(root)
    kept = oracle.read_tensors(source)
    return {name: tensor for name, tensor in root.state_dict().items() if name in kept}

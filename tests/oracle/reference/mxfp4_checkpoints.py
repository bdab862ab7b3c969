"""GPT-OSS checkpoints with experts in MXFP4, and what an engine must serve of them: torch and safetensors alone."""

import json

import safetensors.torch
import torch

import oracle
import shards

MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                             "model.embed_tokens", "lm_head"]}


def make_mxfp4(source, folder):
    """A GPT-OSS checkpoint with experts of random MXFP4 blocks, as they are published: its folder, and that of a second
    one which holds what transformers makes of them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    config = oracle.read_config(source)
    dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
    packed, plain = {}, {}
    generator = torch.Generator().manual_seed(11)
    for name, tensor in oracle.read_tensors(source).items():
        if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            packed[name] = plain[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        scales = torch.randint(116, 125, (experts, rows, columns // 32), generator=generator).to(torch.uint8)
        blocks = torch.randint(0, 256, (*scales.shape, 16), generator=generator).to(torch.uint8)
        packed[f"{name}_blocks"], packed[f"{name}_scales"] = blocks, scales
        plain[name] = convert_moe_packed_tensors(blocks, scales, dtype=dtype)
    for path, tensors, extra in ((folder / "packed", packed, {"quantization_config": MXFP4}), (folder / "plain", plain, {})):
        path.mkdir(parents=True)
        safetensors.torch.save_file(tensors, path / "model.safetensors")
        (path / "config.json").write_text(json.dumps({**config, **extra}))
    return folder / "packed", folder / "plain"


def with_experts_alone_quantized(folder, tp_size, rank, recipe):
    """What oracle.served_tensors says, but for layers that MXFP4 checkpoints leave out."""
    served = oracle.served_tensors(folder, tp_size, rank, recipe)
    plain = oracle.served_tensors(folder, tp_size, rank, "none")
    return ({name: tensor for name, tensor in served.items() if ".experts." in name}
            | {name: tensor for name, tensor in plain.items() if ".experts." not in name})


def with_experts_in_blocks(packed, plain, tp_size, rank):
    """Blocks and exponents as the checkpoint has them: rows of gate, then of up, which alternate there."""
    served = {name: tensor for name, tensor in oracle.served_tensors(plain, tp_size, rank, "none").items()
              if not name.endswith((".w13_weight", ".w2_weight"))}
    for name, tensor in oracle.read_tensors(packed).items():
        module, _, kind = name.rpartition(".")
        if not kind.endswith(("_blocks", "_scales")):
            continue
        if kind.startswith("gate_up"):
            own, half = "w13_weight", shards.shard(tensor.shape[1] // 2, tp_size, rank)
            rows = [shards.rows_of(part.transpose(0, 1), half).transpose(0, 1) for part in (tensor[:, 0::2], tensor[:, 1::2])]
            tensor = torch.cat(rows, dim=1)
        else:
            own, blocks = "w2_weight", shards.shard(tensor.shape[2], tp_size, rank)
            tensor = tensor[:, :, blocks.start : blocks.stop]
        if kind.endswith("_blocks"):
            served[f"{module}.{own}"] = tensor.flatten(2).contiguous()
        else:
            served[f"{module}.{own}_scale"] = tensor.contiguous()
    return served

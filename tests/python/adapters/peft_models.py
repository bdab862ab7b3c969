"""Adapters of PEFT's models with trained factors, and what an engine's slots must hold of them: cut from PEFT's own
tensors here, by torch."""

import copy

import layercast
import peft
import torch
from layercast.dtypes import torch_dtype

MAX_RANK = 8
HEADS = {"q_proj": 4, "k_proj": 2, "v_proj": 2}  # of 32 numbers each
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head", "embed_tokens"]
SOME = ["q_proj", "v_proj", "o_proj", "down_proj"]


def adapted(policy, seed=1, **config):
    """A PEFT model with trained factors: no B is zero."""
    config = {"r": 4, "lora_alpha": 6, "target_modules": SOME, **config}
    model = peft.get_peft_model(copy.deepcopy(policy), peft.LoraConfig(**config))
    return retrained(model, seed)


def retrained(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def factors(model, name="default"):
    """As PEFT saves them."""
    return peft.get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)


def slot_of(folder, fill=7.0, wide=1, **options):
    """A slot's tensors, which hold something else before; `wide`: with strides, as columns of wider ones."""
    found = {}
    for part in layercast.adapter_parts(folder, max_rank=MAX_RANK, **options):
        for spec in (part.a, part.b):
            whole = torch.full((*spec.shape[:-1], spec.shape[-1] * wide), fill, dtype=torch_dtype(spec.dtype))
            found[spec.name] = whole[..., ::wide]
    return found


def expected_of(tensors, tp_rank=0, tp_size=1, dtype=torch.bfloat16):
    """The slot's tensors that an adapter fills, by their names, cut and padded with zeros."""
    found = {}
    for name, a in tensors.items():
        if "lora_A" not in name and "lora_embedding_A" not in name:
            continue
        b = tensors[name.replace("_A", "_B")]
        path = name.removeprefix("base_model.model.").split(".lora_")[0]
        module = path.rpartition(".")[2]

        def rows(tensor, parts=tp_size, rank=tp_rank):
            size = -(-tensor.shape[0] // parts)
            return tensor[size * rank : size * (rank + 1)]

        layer, shard = path, ""
        if module in HEADS or module in ("gate_proj", "up_proj"):
            fused = "qkv_proj" if module in HEADS else "gate_up_proj"
            layer, shard = path.replace(module, fused), f"{module}_"
            b = rows(b)
        elif module in ("o_proj", "down_proj"):
            a = rows(a.T).T
        else:  # the vocabulary, padded to 64 rows and then cut
            padded = torch.nn.functional.pad(b if module == "lm_head" else a.T, (0, 0, 0, 192 - 131))
            a, b = (a, rows(padded)) if module == "lm_head" else (rows(padded), b)
        lookup = module == "embed_tokens"
        full_a = torch.zeros((a.shape[0], MAX_RANK) if lookup else (MAX_RANK, a.shape[1]), dtype=dtype)
        full_b = torch.zeros((b.shape[0], MAX_RANK), dtype=dtype)
        (full_a[:, : a.shape[1]] if lookup else full_a[: a.shape[0]]).copy_(a)
        full_b[:, : b.shape[1]].copy_(b)
        found[f"{layer}.{shard}lora_A"], found[f"{layer}.{shard}lora_B"] = full_a, full_b
    return found


def assert_holds(slot, expected, fill=7.0):
    assert expected.keys() <= slot.keys()
    for name, tensor in slot.items():
        wanted = expected.get(name, torch.full(tensor.shape, fill, dtype=tensor.dtype))
        assert torch.equal(tensor.view(torch.int16) if tensor.is_contiguous() else tensor,
                           wanted.view(torch.int16) if tensor.is_contiguous() else wanted), name


def receiver_of(folder, slots, **options):
    return layercast.AdapterReceiver(folder, slots=slots, max_rank=MAX_RANK, **options)

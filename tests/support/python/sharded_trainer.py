"""What each rank of a sharded trainer holds of a checkpoint, made by PyTorch: FSDP2's `fully_shard`, and DTensors placed
as Megatron cuts layers, in separate processes over gloo. It also makes layouts that cut no tensor: pipeline stages, and
experts spread over ranks.

    sharded_trainer.py CHECKPOINT OUT

writes OUT/LAYOUT/RANK/model.safetensors with the rank's local tensors, and parts.json, which says where each of them
lies in its whole tensor: {name: {"whole": [...], "offsets": [...]}}. The program tests/oracle/drivers/publisher_driver.cc
publishes such a folder.
"""

import json
import pathlib
import sys

import safetensors.torch
import torch
import torch.distributed
import torch.multiprocessing
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

LAYOUTS = {"fsdp_2": 2, "fsdp_3": 3, "megatron": 2, "stages": 2, "experts": 2}
READING = ("o_proj.weight", "w2.weight", "down_proj.weight")  # cut along their inputs: row parallel
WRITING = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "w1.weight", "w3.weight", "embed_tokens.weight",
           "lm_head.weight")


def read(folder):
    tensors = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(safetensors.torch.load_file(file))
    return tensors


def module_of(tensors):
    """A module whose parameters have the checkpoint's names."""
    root = torch.nn.Module()
    for name, tensor in tensors.items():
        *path, leaf = name.split(".")
        module = root
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module._modules[part]
        module.register_parameter(leaf, torch.nn.Parameter(tensor.clone(), requires_grad=False))
    return root


def local_shards(distributed):
    """The local parts of DTensors: name -> (local tensor, offsets, whole shape)."""
    shards = {}
    for name, tensor in distributed.items():
        _, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        shards[name] = (tensor.to_local(), list(offsets), list(tensor.shape))
    return shards


def fsdp(tensors, mesh):
    module = module_of(tensors)
    fully_shard(module, mesh=mesh)
    return local_shards({name: parameter.data for name, parameter in module.named_parameters()})


def megatron(tensors, mesh, rank):
    """The tensors as Megatron cuts them. What is the same on all ranks is published by the first one."""
    cut = {name: Shard(0) if name.endswith(WRITING) else Shard(1) for name in tensors
           if name.endswith(WRITING + READING)}
    shards = local_shards({name: distribute_tensor(tensors[name], mesh, [placement])
                           for name, placement in cut.items()})
    if rank == 0:
        shards.update(whole({name: tensor for name, tensor in tensors.items() if name not in cut}))
    return shards


def whole(tensors):
    return {name: (tensor, [0] * tensor.dim(), list(tensor.shape)) for name, tensor in tensors.items()}


def stage_of(name):
    if ".layers." in name:
        return min(int(name.split(".layers.")[1].split(".")[0]), 1)
    return 0 if "embed" in name else 1


def expert_rank_of(name):
    return int(name.split(".experts.")[1].split(".")[0]) % 2 if ".experts." in name else 0


def write(folder, shards):
    folder.mkdir(parents=True)
    safetensors.torch.save_file({name: local.contiguous() for name, (local, _, _) in shards.items()},
                                folder / "model.safetensors")
    parts = {name: {"whole": shape, "offsets": offsets} for name, (_, offsets, shape) in shards.items()}
    (folder / "parts.json").write_text(json.dumps(parts))


def run(rank, checkpoint, out, rendezvous):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=3)
    tensors, out = read(checkpoint), pathlib.Path(out)
    three, two = DeviceMesh("cpu", [0, 1, 2]), DeviceMesh("cpu", [0, 1])
    write(out / "fsdp_3" / str(rank), fsdp(tensors, three))
    if rank < 2:
        write(out / "fsdp_2" / str(rank), fsdp(tensors, two))
        write(out / "megatron" / str(rank), megatron(tensors, two, rank))
        for layout, rank_of in (("stages", stage_of), ("experts", expert_rank_of)):
            write(out / layout / str(rank), whole({name: t for name, t in tensors.items() if rank_of(name) == rank}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    source, target = sys.argv[1:]
    pathlib.Path(target).mkdir(parents=True, exist_ok=True)
    # Processes are forked, so that torch is loaded only once.
    torch.multiprocessing.start_processes(run, (source, target, pathlib.Path(target).resolve() / "rendezvous"),
                                          nprocs=3, start_method="fork")

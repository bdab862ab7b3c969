"""Trainers' layouts, by real torch.distributed over gloo, each rank a process:

    layouts.py OUT

starts 1, 2 and 4 processes and writes OUT/PROCESSES/LAYOUT/RANK.pt with what layercast says that rank publishes, and
expected.pt beside it with the whole tensors.
A layout is a function rank -> (pieces, expected); it raises what its test expects, which is written in their place.
"""

import copy
import pathlib
import sys
from collections import OrderedDict

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "support/python")]

import models  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, DeviceMesh, Partial, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

from layercast.errors import Error  # noqa: E402
from layercast.trainer import gathered, pieces_of_module, pieces_of_state_dict  # noqa: E402


class Mlp(nn.Module):
    """10 and 7 rows, which nothing divides, and a norm that nobody cuts."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 10)
        self.down = nn.Linear(10, 7)
        self.norm = nn.BatchNorm1d(7)

    def forward(self, x):
        return self.norm(self.down(self.up(x).relu()))


def mlp():
    return models.filled(Mlp())


def of(module):
    """What a plain module holds."""
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def mesh(*shape):
    names = ("dp", "tp") if len(shape) == 2 else ("dp",)
    return DeviceMesh("cpu", torch.arange(torch.Size(shape).numel()).view(shape), mesh_dim_names=names)


def llama(**changes):
    return models.model("llama", torch.float32, **changes)


def sharded_blocks(model, **how):
    for block in model.model.layers:
        fully_shard(block, **how)
    fully_shard(model, **how)
    return model


def in_parallel(module, mesh):
    return parallelize_module(module, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def fsdp(world):
    module = mlp()
    expected = of(module)
    fully_shard(module)
    return pieces_of_module(module), expected


def fsdp_tied(world):
    model = llama(tie_word_embeddings=True)
    expected = models.saved(model)
    return pieces_of_module(sharded_blocks(model)), expected


def fsdp_offloaded(world):
    model = llama()
    expected = models.saved(model)
    return pieces_of_module(sharded_blocks(model, offload_policy=CPUOffloadPolicy(pin_memory=False))), expected


def fsdp_masters(world):
    """fp32 shards of a model that is served in bf16."""
    model = llama()
    model.config.dtype = torch.bfloat16
    expected = {name: tensor.bfloat16() for name, tensor in models.saved(model).items()}
    model.config.dtype = torch.bfloat16  # which save_pretrained has changed
    return pieces_of_module(sharded_blocks(model)), expected


def fsdp_state_dict(world):
    module = mlp()
    expected = of(module)
    fully_shard(module)
    return pieces_of_state_dict(module.state_dict()), expected


def fsdp_after_forward(world):
    """A forward pass leaves the root's parameters gathered, in the dtype that it computes in."""
    module = models.filled(nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 7)))
    expected = of(module)
    fully_shard(module, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    with torch.no_grad():
        module(torch.zeros(2, 6))
    assert not isinstance(module[0].weight, DTensor)
    return pieces_of_module(module), expected


def fsdp_mixture(world):
    model = models.model("qwen3_moe")
    expected = models.saved(model)
    return pieces_of_module(sharded_blocks(model)), expected


def fsdp_mixtral(world):
    model = models.model("mixtral")
    expected = models.saved(model)
    return pieces_of_module(sharded_blocks(model)), expected


def experts_in_parallel(world):
    """transformers' layouts of a mixture: gate and up are one tensor, of whose halves each rank holds a part."""
    model = models.model("qwen3_moe")
    expected = models.saved(model)
    line = DeviceMesh("cpu", torch.arange(world))
    for name, parameter in list(model.named_parameters()):
        holder = model.get_submodule(name.rpartition(".")[0])
        if name.endswith("gate_up_proj"):
            halves = [torch.tensor_split(half, world, 1)[dist.get_rank()] for half in parameter.chunk(2, 1)]
            local = torch.cat(halves, 1)
            placed = DTensor.from_local(local.detach(), line, [_StridedShard(1, split_factor=2)], run_check=False,
                                        shape=parameter.shape, stride=parameter.stride())
        elif name.endswith("down_proj"):
            placed = distribute_tensor(parameter.detach(), line, [Shard(2)])
        else:
            continue
        setattr(holder, name.rpartition(".")[2], nn.Parameter(placed))
    return pieces_of_module(model), expected


def tp(world):
    module = mlp()
    expected = of(module)
    return pieces_of_module(in_parallel(module, mesh(world))), expected


def interleaved(world):
    """A strided shard that no other one completes: rank 0 of 2 holds rows 0, 1, 4, 5 of 8."""
    whole = torch.randn(8 * world, 3, generator=torch.Generator().manual_seed(1))
    pairs = whole.view(2, world, 4, 3)
    local = torch.cat([pairs[0, dist.get_rank()], pairs[1, dist.get_rank()]])
    tensor = DTensor.from_local(local, mesh(world), [_StridedShard(0, split_factor=2)], run_check=False,
                                shape=whole.shape, stride=whole.stride())
    return pieces_of_state_dict({"w": tensor}), {"w": whole}


def fsdp_tp(world):
    """Rows of `up` are cut by both."""
    module = mlp()
    expected = of(module)
    both = mesh(2, world // 2)
    in_parallel(module, both["tp"])
    fully_shard(module, mesh=both["dp"])
    return pieces_of_module(module), expected


def hsdp(world):
    model = llama()
    expected = models.saved(model)
    return pieces_of_module(sharded_blocks(model, mesh=mesh(2, world // 2))), expected


def tp_of_replicas(world):
    """TP alone; the ranks of mesh["dp"] hold the same, and only the mesh's root says so."""
    module = mlp()
    expected = of(module)
    in_parallel(module, mesh(2, world // 2)["tp"])
    return pieces_of_module(module), expected


def replicated(world):
    module = mlp()
    expected = of(module)
    line = mesh(world)
    for name, parameter in list(module.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        placed = nn.Parameter(distribute_tensor(parameter.detach(), line, [Replicate()]))
        setattr(module.get_submodule(owner), leaf, placed)
    return pieces_of_module(module), expected


def ddp(world):
    module = mlp()
    expected = of(module)
    return pieces_of_module(nn.parallel.DistributedDataParallel(module)), expected


def rank_0_alone(world):
    module = mlp()
    return (pieces_of_module(module, ranks=[0]) if dist.get_rank() == 0 else []), of(module)


def stages(world):
    """A pipeline: each half of the ranks holds a stage of its own."""
    half = world // 2
    mine = dist.get_rank() // half
    parts = [models.filled(nn.Sequential(OrderedDict({f"stage{i}": nn.Linear(5, 9)}))) for i in range(2)]
    expected = {**of(parts[0]), **of(parts[1])}
    both = mesh(2, half)
    fully_shard(parts[mine], mesh=both["tp"])
    ranks = range(mine * half, (mine + 1) * half)
    return pieces_of_module(parts[mine], ranks=ranks), expected


def nothing_left(world):
    """One row: ranks beyond the first have nothing at all."""
    module = models.filled(nn.Linear(3, 1, bias=False))
    expected = of(module)
    fully_shard(module)
    return pieces_of_module(module), expected


def gathered_masters(world):
    """All ranks walk, rank 0 keeps."""
    model = models.model("qwen3_moe", torch.float32)
    model.config.dtype = torch.bfloat16
    expected = {name: tensor.bfloat16() for name, tensor in models.saved(model).items()}
    model.config.dtype = torch.bfloat16
    return gathered(sharded_blocks(model)), expected


def adapted(sharded):
    import peft

    model = llama()
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], modules_to_save=["lm_head"])
    model = models.filled(peft.get_peft_model(model, config))
    expected = models.saved(copy.deepcopy(model).merge_and_unload())
    if sharded:
        sharded_blocks(model.get_base_model())
    return model, expected


def gathered_adapters(world):
    model, expected = adapted(sharded=True)
    before = {name: tensor.full_tensor().clone() for name, tensor in model.named_parameters()}
    pieces = list(gathered(model))
    for name, tensor in model.named_parameters():
        assert torch.equal(before[name], tensor.full_tensor()), name
    return pieces, expected


def adapters_on_all_ranks(world):
    model, expected = adapted(sharded=False)
    return pieces_of_module(model), expected


def refused_sharded_adapters(world):
    return pieces_of_module(adapted(sharded=True)[0]), {}


def fused_on_all_ranks(world):
    """One rank computes what the checkpoint has put together."""
    model = models.vision_tower()
    return pieces_of_module(model), models.saved(model)


def sharded_vision_tower():
    model = models.vision_tower()
    expected = models.saved(model)
    fully_shard(model)
    return model, expected


def gathered_fused(world):
    model, expected = sharded_vision_tower()
    return gathered(model), expected


def refused_sharded_fused(world):
    return pieces_of_module(sharded_vision_tower()[0]), {}


def refused_partial(world):
    partial = DTensor.from_local(torch.ones(2, 2), mesh(world), [Partial()], run_check=False)
    return pieces_of_state_dict({"summed": partial}), {}


def refused_unknown_replicas(world):
    """A mesh of half of the ranks, made on its own: whether the others hold the same, nobody knows."""
    half = [list(range(world // 2)), list(range(world // 2, world))]
    meshes = [DeviceMesh("cpu", ranks) for ranks in half]
    tensor = distribute_tensor(torch.ones(4, 2), meshes[dist.get_rank() >= world // 2], [Shard(0)])
    return pieces_of_state_dict({"w": tensor}), {}


def refused_fsdp1(world):
    from torch.distributed.fsdp import FullyShardedDataParallel

    module = FullyShardedDataParallel(mlp(), use_orig_params=True, device_id=torch.device("cpu"))
    return pieces_of_module(module), {}


def fsdp1_gathered(world):
    from torch.distributed.fsdp import FullyShardedDataParallel

    module = mlp()
    expected = of(module)
    module = FullyShardedDataParallel(module, use_orig_params=True, device_id=torch.device("cpu"))
    with FullyShardedDataParallel.summon_full_params(module):
        return [copied(piece) for piece in pieces_of_module(module)], expected


ON_ANY = (fsdp, fsdp_tied, fsdp_offloaded, fsdp_masters, fsdp_state_dict, fsdp_after_forward, fsdp_mixture, tp, ddp,
          gathered_masters)
ON_SEVERAL = (*ON_ANY, interleaved, replicated, nothing_left, rank_0_alone, gathered_adapters, adapters_on_all_ranks,
              fused_on_all_ranks, gathered_fused, fsdp1_gathered, refused_sharded_fused, refused_sharded_adapters,
              refused_partial, refused_unknown_replicas, refused_fsdp1)
LAYOUTS = {1: ON_ANY, 2: ON_SEVERAL,
           4: (*ON_SEVERAL, fsdp_mixtral, experts_in_parallel, fsdp_tp, hsdp, tp_of_replicas, stages)}


def run(rank, world, out, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    for layout in LAYOUTS[world]:
        folder = out / layout.__name__
        folder.mkdir(exist_ok=True, parents=True)
        try:
            pieces, expected = layout(world)
            part = getattr(pieces, "part", None)
            specs = pieces.specs() if hasattr(pieces, "specs") else None
            found = {"part": part, "specs": specs, "pieces": [copied(piece) for piece in pieces]}
        except Error as error:
            found, expected = {"error": f"{type(error).__name__}: {error}"}, {}
        torch.save(found, folder / f"{rank}.pt")
        if rank == 0:
            torch.save(expected, folder / "expected.pt")
    dist.barrier()
    dist.destroy_process_group()


def copied(piece):
    return type(piece)(piece.name, piece.tensor.clone(), piece.whole, piece.offsets)


if __name__ == "__main__":
    for processes in LAYOUTS:
        target = pathlib.Path(sys.argv[1]).resolve() / str(processes)
        target.mkdir(parents=True)
        # Processes are forked, so that torch is loaded only once.
        torch.multiprocessing.start_processes(run, (processes, target, target / "rendezvous"), nprocs=processes,
                                              start_method="fork")

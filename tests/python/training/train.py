"""One rank of a real training: a transformers model, a real optimizer, sharded by torch, published after every step.
Started by torchrun from test_training.py. Rank 0 also holds the engines, and what they are held against.

    train.py LAYOUT FOLDER      LAYOUT: plain, fsdp, tp or fsdp_tp
"""

import atexit
import copy
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

import layercast
from layercast.dtypes import torch_dtype
from layercast.program import program
from layercast.trainer import endpoints_of_all

STEPS = 3
RECIPE = "fp8_per_channel"
CONFIG = LlamaConfig(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=130, dtype="bfloat16",
)  # fmt: skip


def sharded(model: LlamaForCausalLM, layout: str) -> LlamaForCausalLM:
    """The model as the layout wants it. Its vocabulary does not divide by four: some shards are smaller."""
    world = dist.get_world_size()
    tp = {"plain": 1, "fsdp": 1, "tp": world, "fsdp_tp": 2}[layout]
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("fsdp", "tp"))
    if tp > 1:
        plan = {}
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            plan[name] = ColwiseParallel()
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            plan[name] = RowwiseParallel()
        for layer in model.model.layers:
            parallelize_module(layer, mesh["tp"], plan)
    if "fsdp" in layout:
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh["fsdp"])
        fully_shard(model, mesh=mesh["fsdp"])
    return model


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """What save_pretrained writes of the whole model, in the engine's dtype: a collective."""
    whole = {
        name: (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()
        for name, tensor in model.state_dict().items()
    }
    if dist.get_rank() == 0:
        model = LlamaForCausalLM(copy.deepcopy(CONFIG)).float()
        model.load_state_dict(whole)
        model.to(torch.bfloat16).save_pretrained(folder)


class Buffers:
    """An engine's rank in this process: its own tensors, and a receiver that adopted them."""

    def __init__(self, folder: Path, tp_rank: int, tp_size: int) -> None:
        how = {"tp_rank": tp_rank, "tp_size": tp_size, "quantization": RECIPE}
        self.tensors = {
            spec.name: torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype))
            for spec in layercast.buffer_specs(folder, **how)
        }
        self.addresses = {name: tensor.data_ptr() for name, tensor in self.tensors.items()}
        self.receiver = layercast.Receiver(folder, buffers=self.tensors, engine=f"tp{tp_size}-{tp_rank}", **how)

    def bytes(self) -> dict[str, bytes]:
        return {name: tensor.view(torch.uint8).numpy().tobytes() for name, tensor in self.tensors.items()}

    def check_unmoved(self) -> None:
        assert {name: tensor.data_ptr() for name, tensor in self.tensors.items()} == self.addresses


class Engine:
    """`layercast serve` of two ranks."""

    def __init__(self, folder: Path) -> None:
        how = ["--tp", "2", "--quantization", RECIPE, "--allow-path", "/", "--bind", "tcp://127.0.0.1:0"]
        self.process = subprocess.Popen(
            [program(), "serve", "--model", str(folder), *how], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        atexit.register(self.end)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert " at tcp://" in said, said
        self.endpoint = said.split(" at ")[1].split()[0]

    def end(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait()


def check(step: int, folder: Path, endpoints: list[str], adopted: list[Buffers], engine: str) -> None:
    """All that was taken from the publishers is what a cold load of save_pretrained's folder gives."""
    for rank, size, buffers in ((0, 1, adopted[0]), (0, 2, adopted[1]), (1, 2, adopted[2])):
        report = buffers.receiver.reload_weights(endpoints)
        assert report.version.step == step
        cold = Buffers(folder, rank, size)
        cold.receiver.reload_weights(folder)
        assert buffers.bytes() == cold.bytes(), f"step {step}, rank {rank} of {size}"
        buffers.check_unmoved()
    layercast.Controller(engine).reload(endpoints)
    verification = layercast.verify(engine, folder)
    assert verification, verification.differences


def main(layout: str, root: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = sharded(LlamaForCausalLM(copy.deepcopy(CONFIG)).float(), layout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    publisher = layercast.Publisher()
    first = root / "step-0"
    save(model, first)
    adopted: list[Buffers] = []
    engine = None
    if dist.get_rank() == 0:
        adopted = [Buffers(first, 0, 1), Buffers(first, 0, 2), Buffers(first, 1, 2)]
        engine = Engine(first)
    before = None
    for step in range(1, STEPS + 1):
        tokens = torch.randint(0, CONFIG.vocab_size, (2, 16), generator=torch.Generator().manual_seed(step))
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        published = publisher.publish(model, step=step, dtype=torch.bfloat16)
        endpoints = endpoints_of_all(published)
        folder = root / f"step-{step}"
        save(model, folder)
        if engine is not None:
            if step == 2:  # it is gone, and comes back from the checkpoint of the start
                engine.end(signal.SIGKILL)
                engine = Engine(first)
            check(step, folder, endpoints, adopted, engine.endpoint)
            served = adopted[0].bytes()
            assert served != before
            before = served
        dist.barrier()
    if engine is not None:
        print(f"{layout} on {dist.get_world_size()}: {STEPS} steps, {len(endpoints)} publishers, equal")
    publisher.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main(sys.argv[1], Path(sys.argv[2]))

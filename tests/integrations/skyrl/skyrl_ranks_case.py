"""Run by torchrun, two processes: `skyrl_ranks_case.py ENGINE... SCRATCH`. A policy sharded by FSDP2, which SkyRL's extractor
gathers. Each rank prints a line of JSON; the second send has a NaN."""

import json
import pathlib
import sys

import skyrl_worker
import layercast
import serving
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

*engines, scratch = sys.argv[1:]
dist.init_process_group("gloo")
rank = dist.get_rank()
layercast.skyrl.install(engines)
module = serving.toy.policy(seed=3).to(torch.bfloat16)
if rank == 0:
    module.save_pretrained(pathlib.Path(scratch) / "trained")
for layer in module.model.layers:
    fully_shard(layer)
fully_shard(module)
worker = skyrl_worker.worker(module, skyrl_worker.Client(engines))
metrics = skyrl_worker.send(worker)
with torch.no_grad():
    for parameter in module.parameters():
        parameter.fill_(float("nan"))
raised = ""
try:
    skyrl_worker.send(worker)
except layercast.Corrupt as error:
    raised = str(error)
worker._weight_transfer_sender.teardown()
print(json.dumps({"rank": rank, "metrics": metrics, "raised": raised}), flush=True)
dist.destroy_process_group()

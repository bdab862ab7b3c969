"""Run by torchrun, a process a rank: publishes Megatron-core's model, or computes with it, and prints a line of JSON. Arguments:
the folder, tp, pp, ep, "publish" or "forward"."""

import json
import os
import pathlib
import sys

import core_model
import layercast
import torch
import torch.distributed as dist

folder, (tp, pp, ep), how = pathlib.Path(sys.argv[1]), map(int, sys.argv[2:5]), sys.argv[5]
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = core_model.model_of(folder, tp, pp, ep, torch.float32 if how == "forward" else torch.bfloat16)
line = {"rank": dist.get_rank()}
if how == "forward":
    tokens = torch.tensor([[3, 11, 4, 100, 77, 8]])
    mask = torch.ones(6, 6).triu(1).bool()[None, None]
    with torch.no_grad():
        line["logits"] = model(tokens, torch.arange(6)[None], mask)[0].tolist()
    print(json.dumps(line), flush=True)
else:
    with layercast.Publisher(lineage="megatron") as publisher:
        published = layercast.megatron.publish(publisher, model, folder, step=1, run="r")
        print(json.dumps(line | {"endpoint": published and published.endpoint}), flush=True)
        sys.stdin.read()  # until engines have taken it
        dist.barrier()
os._exit(0)

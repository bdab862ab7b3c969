"""Run by torchrun, two processes: `broadcast_case.py ENGINE`. One rank's walk breaks off, then the version is whole. Each rank
prints a line of JSON."""

import json
import sys

import serving
import torch.distributed as dist
from layercast.integrations.broadcast import Broadcast

dist.init_process_group("gloo")
rank = dist.get_rank()
module = serving.toy.policy(seed=4).to(serving.torch.bfloat16)
said = {"rank": rank, "raised": []}


def walk(breaks_off):
    yield from list(module.state_dict().items())[:3]
    if breaks_off:
        raise OSError("out of something")
    yield from list(module.state_dict().items())[3:]


with Broadcast(sys.argv[1]) as broadcast:
    for breaking in (0, 1):
        try:
            broadcast.walked(walk(rank == breaking))
        except Exception as error:
            said["raised"].append(f"{type(error).__name__}: {error}")
    said["version"] = broadcast.walked(walk(False))["layercast/version"]
    said["held"] = broadcast.held(module)["layercast/version"]
    dist.barrier()
print(json.dumps(said), flush=True)
dist.destroy_process_group()

"""A rank of a trainer of two that publish adapters together, with their base: adapters_case.py OUT BASE RANK. Publishes the
lineages "ddp", of a model that is whole on both ranks, and "fsdp", of a sharded one; each as a snapshot, step 1, and as a
stream, step 2. Writes OUT/endpoints, and OUT/adapter.pt with the whole factors, and waits for OUT/done."""

import json
import os
import pathlib
import sys
import time

import layercast
import peft
import torch
import torch.distributed as dist
from layercast.trainer import endpoints_of_all
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM


def policy(base):
    torch.manual_seed(3)
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16),
                                peft.LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "down_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    return model.bfloat16()


def main(out, base, rank):
    out, rank = pathlib.Path(out), int(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=(out / "port").read_text())
    dist.init_process_group("gloo", rank=rank, world_size=2)
    sharded = policy(base)
    for layer in sharded.get_base_model().model.layers:
        fully_shard(layer)
    fully_shard(sharded)
    with layercast.Publisher(retained_versions=4) as publisher:
        for lineage, model in (("ddp", DistributedDataParallel(policy(base))), ("fsdp", sharded)):
            model(torch.tensor([[1, 2, 3]]))  # after which FSDP2's root stays gathered
            for step, stream in ((1, False), (2, True)):
                published = publisher.publish_adapters({"policy": model}, base=model, step=step, lineage=lineage,
                                                       stream=stream)
                endpoints = endpoints_of_all(published)
        if rank == 0:
            torch.save(peft.get_peft_model_state_dict(policy(base)), out / "adapter.pt")
            (out / "endpoints.part").write_text(json.dumps(endpoints))
            (out / "endpoints.part").rename(out / "endpoints")
        while not (out / "done").exists():
            time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])

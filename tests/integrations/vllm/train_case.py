"""A trainer under torchrun, which speaks vLLM's own interfaces: `train_case.py FOLDER SERVER OUT`, on each rank.

Shards a policy by FSDP2, changes it twice, sends it each time, and rank 0 saves what it has sent.
"""

import sys

import torch
import torch.distributed as distributed
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    import transformers
    from layercast.vllm import register
    from layercast.vllm.trainer import DoorClient, LayercastTrainerInfo
    from vllm.distributed.weight_transfer import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.base import ModuleSource

    folder, server, out = sys.argv[1:]
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    register()
    policy = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in policy.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    trainer = WeightTransferTrainerFactory.trainer_init(
        LayercastTrainerInfo(rank=rank, world_size=ranks), client=DoorClient(server), source=ModuleSource(policy)
    )
    for _ in range(2):
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(1.5)
        trainer.send_weights()
    whole = get_model_state_dict(policy, options=StateDictOptions(full_state_dict=True))
    if rank == 0:
        unsharded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        unsharded.load_state_dict(whole)
        unsharded.save_pretrained(out)
    trainer.shutdown()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

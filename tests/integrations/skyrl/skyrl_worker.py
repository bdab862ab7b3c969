"""A policy worker of SkyRL's, as far as weight sync goes: its own init_weight_sync_state, extractor and send."""

import asyncio
import types

import on_a_cpu  # noqa: F401
import torch
from skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker import FSDPWeightExtractor
from skyrl.backends.skyrl_train.workers.worker import Worker


class Client:
    """Of SkyRL's RemoteInferenceClient, what weight sync asks: which servers there are."""

    def __init__(self, server_urls):
        self.server_urls, self.told = server_urls, []

    async def get_world_size(self):
        return len(self.server_urls), 1

    async def init_weight_update_communicator(self, init_info):
        """As SkyRL's own expands what servers are told."""
        self.told += [info.to_api_payload() for info in init_info.for_servers(1, len(self.server_urls), dp_size=1)]


def worker(module, client):
    """torch.distributed runs already."""
    made = types.SimpleNamespace(cfg=types.SimpleNamespace(placement=types.SimpleNamespace(colocate_all=False)))
    made.extractor = FSDPWeightExtractor(module)
    config = types.SimpleNamespace(weight_sync_backend="nccl", run_engines_locally=True)
    asyncio.run(Worker.init_weight_sync_state(made, client, config))
    return made


def send(made, dtype=torch.bfloat16):
    """As FSDPPolicyWorkerBase.broadcast_to_inference_engines sends."""
    chunks, metadata = made.extractor.extract_weights(dtype), made.extractor.get_weight_metadata(dtype)
    return asyncio.run(made._weight_transfer_sender.send_chunks(chunks, weight_metadata=metadata))

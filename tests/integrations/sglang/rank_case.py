"""rank_case.py RANK STORE ENDPOINT CASE: one of two ranks of an SGLang model. Prints as JSON what its RPCs answered,
and whether its bytes are the old ones or those of SGLang's own cold load."""

import contextlib
import json
import os
import pathlib
import sys
from unittest import mock

os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
os.environ["SGLANG_NCCL_SO_PATH"] = "no NCCL here"  # it would ask for a GPU, which gloo does not
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import stand_ins

stand_ins.install()

import scenes
import torch


def join(rank, store):
    from sglang.srt.distributed import parallel_state
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    torch.set_num_threads(1)
    arguments = ServerArgs(model_path="dummy", device="cpu", tp_size=2)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=rank))
    parallel_state.init_distributed_environment(
        world_size=2, rank=rank, local_rank=rank, distributed_init_method=f"file://{store}", backend="gloo"
    )
    parallel_state.initialize_model_parallel()


def quantized_by_sglang():
    from sglang.srt.layers.quantization import w8a8_fp8

    w8a8_fp8.per_token_group_quant_fp8 = scenes.multiplying_kernel
    w8a8_fp8.cutlass_fp8_supported = lambda: True
    return w8a8_fp8.W8A8Fp8Config()


def processing_raises():
    from sglang.srt.layers.quantization.w8a8_fp8 import W8A8Fp8LinearMethod

    return mock.patch.object(W8A8Fp8LinearMethod, "process_weights_after_loading", side_effect=MemoryError("no room"))


def main(rank, store, endpoint, case):
    join(rank, store)
    from layercast.sglang import register

    register()
    quantization = quantized_by_sglang() if case.startswith("fp8") else None
    model = scenes.loaded(scenes.qwen2(quantization), scenes.checkpoint(0))
    old = scenes.served(model)
    scheduler = scenes.scheduler_of(model)
    answers = []

    def rpc(method, **parameters):
        answer = scenes.rpc(scheduler, f"layercast_{method}", **parameters)
        answers.append([answer.success, answer.message])

    rpc("stage", endpoint=endpoint)
    with processing_raises() if case == "fp8, but rank 1 raises" and rank == 1 else contextlib.nullcontext():
        rpc("prepare", wait=60.0)
        if case == "moved" and rank == 1:
            norm = model.model.norm
            norm.weight.data = norm.weight.data.clone()
            old = scenes.served(model)
        rpc("commit")
    new = scenes.contents(scenes.loaded(scenes.qwen2(quantization), scenes.checkpoint(1)))
    have = scenes.served(model)
    print(json.dumps({"answers": answers, "old": have == old, "new": scenes.contents(model) == new,
                      "heads": list(model.model.layers[0].self_attn.qkv_proj.weight.shape)}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])

"""What the tests against OpenRLHF's wheel share: a policy, its trainer's class on a CPU, and its vLLM engines in Ray's actors."""

import argparse
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
VLLM = HERE.parent / "vllm"
PATHS = [str(HERE), str(HERE.parent / "shared"), str(HERE.parent / "trl"), str(VLLM), str(VLLM / "plugin")]
sys.path[:0] = PATHS
# The processes of Ray and vLLM inherit it. vLLM's CUDA wheel on a CPU: vllm/cpu_ops.py stands in for what is for GPUs alone.
os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
               "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
               "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_PLUGINS": "layercast,layercast_cpu_ops",
               "DS_ACCELERATOR": "cpu"}

import pytest  # noqa: E402
from serving import folder, serve  # noqa: E402, F401


@pytest.fixture
def actors():
    """The modules in which OpenRLHF has its actors, which are afterwards as they were."""
    from openrlhf.trainer.ray import ppo_actor, vllm_engine

    theirs = ppo_actor.PolicyModelActor, vllm_engine.RolloutRayActor
    yield ppo_actor, vllm_engine
    ppo_actor.PolicyModelActor, vllm_engine.RolloutRayActor = theirs


@pytest.fixture
def trainer_of():
    """trainer_of(module, engines, zero_stage) -> OpenRLHF's ActorPPOTrainer, which its constructor would put on a GPU."""
    from openrlhf.trainer.ray import ppo_actor

    kept = {name: getattr(ppo_actor.ActorPPOTrainer, name) for name in ("broadcast_to_vllm", "_init_vllm_sync_group")}

    def make(module, engines=(), zero_stage=2):
        ds = argparse.Namespace(zero_stage=zero_stage, tensor_parallel_size=1)
        strategy = argparse.Namespace(args=argparse.Namespace(ds=ds, vllm=argparse.Namespace()))
        actor = argparse.Namespace(model=argparse.Namespace(module=module))
        trainer = ppo_actor.ActorPPOTrainer.__new__(ppo_actor.ActorPPOTrainer)
        trainer.__dict__.update(strategy=strategy, args=strategy.args, actor=actor, vllm_engines=list(engines))
        return trainer

    yield make
    for name, method in kept.items():
        setattr(ppo_actor.ActorPPOTrainer, name, method)

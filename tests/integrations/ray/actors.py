"""What tests ask of actors: who they are, and what dies with them."""

import os
import signal

import psutil
import ray

SECONDS = 60


def pid_of(actor):
    return ray.get(actor.__ray_call__.remote(lambda self: os.getpid()), timeout=SECONDS)


def kill(actor):
    """As a machine would: nothing of the actor's own code runs any more. Returns when all its processes have ended."""
    kill_process(pid_of(actor))


def kill_process(pid):
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    os.kill(pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=SECONDS)
    assert not alive, f"still there: {alive}"


def weights(seed):
    import rl_loop
    import torch

    policy = rl_loop.new_policy()
    torch.manual_seed(seed)
    return {name: torch.randn_like(parameter) * 0.1 for name, parameter in policy.named_parameters()}


def serves(actor):
    return ray.get(actor.status.remote(), timeout=SECONDS)["version"]["step"]

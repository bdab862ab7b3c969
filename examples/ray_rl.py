"""A policy learns on Ray: two trainer workers shard it with FSDP2 (gloo), and engines that serve it in FP8 sample its
rollouts. Workers and engines may die, and engines may come and go, while it learns.

    pip install ray && python examples/ray_rl.py [--updates 40] [--engines 2]

The task is that of rl_loop.py. After every update rank 0 writes a checkpoint. When a worker dies, Ray starts it anew,
and all workers meet again and go on from there; when an engine dies, it comes back with the newest version by itself.
"""

import argparse
import datetime
import os
import pathlib
import random
import tempfile
from collections.abc import Callable
from typing import Any

import layercast
import ray
import torch
from rl_loop import DIGITS, HELD_OUT, PROMPTS, SAMPLES, TRAINING, learn, new_policy, rewards_of
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

WORKERS = 2
MOST_RESTARTS = 8
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
During = Callable[[str, int], None]


class Trainer(layercast.ray.PublisherActor):
    """A rank of the trainer. It is nobody before it has met the others."""

    def __init__(self, name: str, folder: str, rank: int) -> None:
        super().__init__(name, rank=rank, ranks=WORKERS)
        self.folder, self.rank = pathlib.Path(folder), rank
        torch.set_num_threads(1)

    def meet(self, attempt: int) -> int:
        """Begins anew with all other ranks, from the last checkpoint if there is one; returns its step."""
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{self.folder}/meeting-{attempt}", rank=self.rank, world_size=WORKERS,
            timeout=datetime.timedelta(seconds=60))
        self.policy, self.step = new_policy(), 0
        for layer in self.policy.model.layers:
            fully_shard(layer)
        fully_shard(self.policy)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
        if (self.folder / "checkpoint.pt").exists():
            saved = torch.load(self.folder / "checkpoint.pt", weights_only=True)
            set_state_dict(self.policy, self.optimizer, model_state_dict=saved["policy"],
                           optim_state_dict=saved["optimizer"], options=WHOLE)
            self.step = saved["step"]
        self.publish_anew()
        return self.step

    def publish_policy(self) -> dict[str, float]:
        return self.publish(self.policy, step=self.step)

    def learn(self, prompts: list[list[int]], rollouts: list[layercast.Sequence]) -> float:
        reward = learn(self.policy, self.optimizer, prompts, rollouts)
        self.step += 1
        policy, optimizer = get_state_dict(self.policy, self.optimizer, options=WHOLE)
        if self.rank == 0:
            unfinished = self.folder / "checkpoint.unfinished"
            torch.save({"policy": policy, "optimizer": optimizer, "step": self.step}, unfinished)
            unfinished.rename(self.folder / "checkpoint.pt")
        torch.distributed.barrier()
        return reward


def start_engine(name: str, folder: str, number: int) -> Any:
    options = ray.remote(max_restarts=MOST_RESTARTS, max_task_retries=MOST_RESTARTS, max_concurrency=2, num_cpus=0)
    kind = options(layercast.ray.EngineActor).options(name=f"{name}-engine-{number}")
    return kind.remote(name, folder, ["--quantization", "fp8_per_channel"])


def sample(registry: Any, prompts: list[list[int]], seed: int, step: int, during: During) -> list[layercast.Sequence]:
    """Each engine that is there now answers a share. Raises FailedPrecondition for an answer of another version."""
    names = list(ray.get(registry.engines.remote()))
    share = -(-len(prompts) // len(names))
    calls = [
        ray.get_actor(name).generate.remote(prompts[first:first + share], max_new=DIGITS, temperature=1.0,
                                            seed=seed + first, ignore_eos=True)
        for name, first in zip(names, range(0, len(prompts), share))
    ]
    during("rollouts", step)
    answers = [answer for call in calls for answer in ray.get(call)]
    steps = {version.step for answer in answers for _, _, version in answer.spans}
    if steps != {step}:
        raise layercast.FailedPrecondition(f"expected answers of version {step}, got those of {sorted(steps)}")
    return answers


def update(name: str, registry: Any, workers: list[Any], step: int, during: During) -> dict[str, float]:
    """One step of the trainer; returns its metrics."""
    published = ray.get([worker.publish_policy.remote() for worker in workers])
    metrics: dict[str, float] = published[0] | layercast.ray.reload(name, step)
    chosen = [prompt for prompt in random.Random(step).sample(TRAINING, PROMPTS) for _ in range(SAMPLES)]
    rollouts = sample(registry, chosen, step << 17, step, during)
    share = len(chosen) // WORKERS
    calls = [
        worker.learn.remote(chosen[first:first + share], rollouts[first:first + share])
        for worker, first in zip(workers, range(0, len(chosen), share))
    ]
    during("learning", step)
    return metrics | {"reward": sum(ray.get(calls)) / WORKERS}


def meet(workers: list[Any], attempt: int) -> int:
    """Has all workers go on together, also those that Ray is starting anew; returns the step that they go on from."""
    calls = [worker.meet.options(max_task_retries=-1).remote(attempt) for worker in workers]
    (step,) = set(ray.get(calls, timeout=300))
    return int(step)


def run(
    name: str, updates: int, engines: int, folder: str, during: During = lambda what, step: None
) -> list[dict[str, float]]:
    """Trains, on a cluster that ``ray.init`` has joined; returns each update's metrics, and then the held-out reward.

    ``during("rollouts" or "learning", step)`` is called while engines, or workers, are at it.
    """
    new_policy().save_pretrained(folder)
    history: list[dict[str, float]] = []
    with layercast.ray.run(name) as registry:
        kind = ray.remote(max_restarts=MOST_RESTARTS, num_cpus=0)(Trainer)
        workers = [kind.options(name=f"{name}-trainer-{rank}").remote(name, folder, rank) for rank in range(WORKERS)]
        served = [start_engine(name, folder, number) for number in range(engines)]
        attempt, step = 0, meet(workers, 0)
        while step < updates:
            try:
                history.append({"step": step, **update(name, registry, workers, step, during)})
                step += 1
            except (ray.exceptions.RayError, layercast.Error) as error:
                if (attempt := attempt + 1) > MOST_RESTARTS:
                    raise
                step = meet(workers, attempt)
                print(f"went on from step {step} after: {str(error).strip().splitlines()[-1]}", flush=True)
                continue
            print(f"update {step:3}  reward {history[-1]['reward']:.3f}", flush=True)
        ray.get([worker.publish_policy.remote() for worker in workers])
        layercast.ray.reload(name, step)
        answers = sample(registry, HELD_OUT, 1, step, lambda what, step: None)
        held_out = float(rewards_of(HELD_OUT, [answer.tokens for answer in answers]).mean())
        history.append({"step": step, "reward": held_out})
        for actor in (*workers, *served):
            ray.kill(actor)
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--engines", type=int, default=2)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # matrices this small gain nothing from more
    ray.init()
    with tempfile.TemporaryDirectory() as folder:
        held_out = run("ray-rl", given.updates, given.engines, folder)[-1]["reward"]
    print(f"reward on held-out prompts after {given.updates} updates: {held_out:.3f}")


if __name__ == "__main__":
    main()

"""QeRL at the smallest size: a policy in full precision, or a LoRA adapter of it, learns additions by GRPO, while an engine that
serves it quantized samples its rollouts; with and without adaptive noise on the engine's norms (docs/noise.md).

    python examples/qerl/qerl.py [--updates 60] [--seeds 5] [--train full,lora] [--recipes nvfp4,fp8_per_channel]
                                 [--noise off,on] [--sigma 0.01,0.0001] [--out out/qerl]

Each run is a line of runs.jsonl in --out; the table, and plot.png if matplotlib is there, are of all of them. The task: "3 8 +
4 5 =" wants 083. Policies begin with a little supervised training, as those that people train do.
"""

import argparse
import itertools
import json
import pathlib
import random
import tempfile
import time
from contextlib import contextmanager
from collections.abc import Iterator

import layercast
import peft
import report
import torch
from engine import serving
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

DIGITS, PLUS, EQUALS, EPOCHS = 3, 10, 11, 2
PAIRS = list(itertools.product(range(100), repeat=2))
HELD_OUT, TRAINING = PAIRS[::40], [pair for index, pair in enumerate(PAIRS) if index % 40]
LORA = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")


def prompt(pair: tuple[int, int]) -> list[int]:
    a, b = pair
    return [a // 10, a % 10, PLUS, b // 10, b % 10, EQUALS]


def answer(pair: tuple[int, int]) -> list[int]:
    total = sum(pair)
    return [total // 100, total // 10 % 10, total % 10]


def new_policy(seed: int, warm_up: int) -> PreTrainedModel:
    """After so many steps of supervised training."""
    config = Qwen3Config(vocab_size=16, hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=16,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         initializer_range=0.08, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    torch.manual_seed(seed)
    policy, pairs = Qwen3ForCausalLM(config), random.Random(seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    for _ in range(warm_up):
        batch = pairs.sample(TRAINING, 128)
        wanted = torch.tensor([answer(pair) for pair in batch])
        inputs = torch.cat([torch.tensor([prompt(pair) for pair in batch]), wanted[:, :-1]], dim=1)
        loss = torch.nn.functional.cross_entropy(policy(inputs).logits[:, -DIGITS:].flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


def rewards_of(pairs: list[tuple[int, int]], tokens: list[list[int]]) -> torch.Tensor:
    """[rollouts]: the share of digits that are right."""
    return (torch.tensor(tokens) == torch.tensor([answer(pair) for pair in pairs])).float().mean(1)


def learn(policy: torch.nn.Module, optimizer: torch.optim.Optimizer, pairs: list[tuple[int, int]],
          rollouts: list[layercast.Sequence], samples: int) -> float:
    """GRPO. The engine's log-probabilities, of quantized weights and noisy norms, are the old policy's. Returns the mean
    reward."""
    answers = torch.tensor([rollout.tokens for rollout in rollouts])
    rewards = rewards_of(pairs, answers.tolist())
    groups = rewards.view(-1, samples)
    advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    old = torch.tensor([rollout.logprobs for rollout in rollouts])
    inputs = torch.cat([torch.tensor([prompt(pair) for pair in pairs]), answers[:, :-1]], dim=1)
    for _ in range(EPOCHS):
        logprobs = policy(inputs).logits[:, -DIGITS:].log_softmax(-1)
        ratio = (logprobs.gather(2, answers.unsqueeze(2)).squeeze(2) - old).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages).mean()
        optimizer.zero_grad()
        (-gain).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return float(rewards.mean())


class Phases:
    """Seconds by phase, of one update after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds.setdefault(name, []).append(time.perf_counter() - began)


def run(given: argparse.Namespace, train: str, recipe: str, noise: str, seed: int) -> dict[str, object]:
    base, pairs_of, phases = new_policy(seed, given.warm_up), random.Random(seed + 1000), Phases()
    start, end = map(float, given.sigma.split(","))
    stages = layercast.NoiseStages(given.updates, start, end, min(10, max(2, given.updates)), seed)
    rewards, entropies, sigmas = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        base.save_pretrained(folder)
        policy = peft.get_peft_model(base, LORA) if train == "lora" else base
        optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3 if train == "lora" else 1e-3, weight_decay=0.0)
        with serving(folder, recipe) as endpoint, layercast.Publisher(lineage=f"seed-{seed}") as publisher:
            controller = layercast.Controller(endpoint)
            for step in range(given.updates):
                with phases("publish"):  # a LoRA adapter is merged, since the norms are the base's
                    published = publisher.publish(policy, step=step, noise=stages if noise == "on" else None)
                with phases("reload"):
                    (outcome,) = controller.reload(published)
                pairs = [pair for pair in pairs_of.sample(TRAINING, given.prompts) for _ in range(given.samples)]
                with phases("rollout"):
                    rollouts = controller.generate([prompt(pair) for pair in pairs], max_new=DIGITS, temperature=1.0,
                                                   seed=(seed * given.updates + step) << 16, ignore_eos=True)
                entropies.append(-sum(sum(rollout.logprobs) for rollout in rollouts) / len(rollouts) / DIGITS)
                sigmas.append(outcome.report.noise["sigma"] if outcome.report and outcome.report.noise else 0.0)
                with phases("learn"):
                    rewards.append(learn(policy, optimizer, pairs, rollouts, given.samples))
            controller.reload(publisher.publish(policy, step=given.updates))
            at_last = controller.generate([prompt(pair) for pair in HELD_OUT], max_new=DIGITS, ignore_eos=True)
    held_out = float(rewards_of(HELD_OUT, [sequence.tokens for sequence in at_last]).mean())
    return {"train": train, "recipe": recipe, "noise": noise, "seed": seed, "updates": given.updates, "held_out": held_out,
            "reward": rewards, "entropy": entropies, "sigma": sigmas,
            "seconds": {name: sum(each) / len(each) for name, each in phases.seconds.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, default in (("updates", 60), ("seeds", 5), ("prompts", 32), ("samples", 16), ("warm-up", 150)):
        parser.add_argument("--" + name, type=int, default=default)
    for name, text in (("train", "full,lora"), ("recipes", "nvfp4,fp8_per_channel"), ("noise", "off,on")):
        parser.add_argument("--" + name, type=lambda given: given.split(","), default=text.split(","))
    parser.add_argument("--sigma", default="0.01,0.0001")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/qerl"))
    given = parser.parse_args()
    torch.set_num_threads(1)  # matrices this small gain nothing from more
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "runs.jsonl").open("w") as lines:
        for seed, train, recipe, noise in itertools.product(range(given.seeds), given.train, given.recipes, given.noise):
            done = run(given, train, recipe, noise, seed)
            print(json.dumps(done), file=lines, flush=True)
            print(f"{report.name(done):28} seed {seed}  held out {done['held_out']:.3f}", flush=True)
    report.write(given.out)


if __name__ == "__main__":
    main()

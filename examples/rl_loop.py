"""A policy in PyTorch learns from rewards, while an engine that serves it in FP8 samples its rollouts: every step publishes
the policy, brings the engine to that version, and samples from it. Then the same without syncing, to compare.

    python examples/rl_loop.py [--updates 40] [--tp 1] [--lora]

With --lora it compares with a policy of which a LoRA adapter alone is trained, and travels. The task: answer "4 0 7 ="
with the same three digits. A digit that is right is rewarded with 1; random ones get 0.1.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import layercast
import peft
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

DIGITS, EQUALS, PROMPTS, SAMPLES, EPOCHS = 3, 10, 32, 16, 4
HELD_OUT = [[number // 100, number // 10 % 10, number % 10, EQUALS] for number in range(0, 1000, 8)]
TRAINING = [[number // 100, number // 10 % 10, number % 10, EQUALS] for number in range(1000) if number % 8]
LORA = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")


def new_policy() -> PreTrainedModel:
    config = Qwen3Config(vocab_size=16, hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=16,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         initializer_range=0.08, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config)


@contextmanager
def engine(model: str, tp: int) -> Iterator[str]:
    """The built-in engine with FP8 weights, in processes of its own; yields its endpoint."""
    command = [sys.executable, "-m", "layercast", "serve", "--model", model, "--tp", str(tp), "--quantization",
               "fp8_per_channel", "--bind", "tcp://127.0.0.1:0", "--json", "--adapter-slots", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["endpoint"]
    finally:
        process.terminate()
        process.wait()


def rewards_of(prompts: list[list[int]], answers: list[list[int]]) -> torch.Tensor:
    """[rollouts, DIGITS]: 1 for each digit that is right."""
    return (torch.tensor(answers) == torch.tensor(prompts)[:, :DIGITS]).float()


def sample(controller: layercast.Controller, prompts: list[list[int]], seed: int,
           adapter: str) -> list[layercast.Sequence]:
    return controller.generate(prompts, max_new=DIGITS, temperature=1.0, seed=seed << 16, adapter=adapter, ignore_eos=True)


def learn(policy: torch.nn.Module, optimizer: torch.optim.Optimizer, prompts: list[list[int]],
          rollouts: list[layercast.Sequence]) -> float:
    """GRPO: a digit's advantage is its reward among the samples of its prompt; the engine's log-probabilities are those
    of the old policy. Returns the mean reward."""
    answers = torch.tensor([rollout.tokens for rollout in rollouts])
    rewards = rewards_of(prompts, answers.tolist())
    groups = rewards.view(-1, SAMPLES, DIGITS)
    advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view_as(rewards)
    old = torch.tensor([rollout.logprobs for rollout in rollouts])
    inputs = torch.cat([torch.tensor(prompts), answers[:, :-1]], dim=1)
    for _ in range(EPOCHS):
        logprobs = policy(inputs).logits[:, -DIGITS:].log_softmax(-1)
        ratio = (logprobs.gather(2, answers.unsqueeze(2)).squeeze(2) - old).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages).mean()
        entropy = -(logprobs.exp() * logprobs).sum(-1).mean()
        optimizer.zero_grad()
        (-gain - 0.02 * entropy).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return float(rewards.mean())


def synced(controller: layercast.Controller, publisher: layercast.Publisher, policy: torch.nn.Module, step: int,
           adapter: str) -> str:
    """Brings the engine to the policy as it is now; says how many bytes one of its ranks took, and how long that took."""
    began = time.perf_counter()
    if adapter:
        published = publisher.publish_adapters({adapter: policy}, step=step, dtype=torch.bfloat16)
        (outcome,) = controller.load_adapter(adapter, publisher=published)
    else:
        (outcome,) = controller.reload(publisher.publish(policy, step=step))
    return f"{outcome.report.bytes if outcome.report else 0} bytes in {1e3 * (time.perf_counter() - began):.1f} ms"


def run(updates: int, tp: int, how: str) -> float:
    """Trains for so many updates; returns the reward on held-out prompts, as the engine answers them at last."""
    base, prompts_of, adapter = new_policy(), random.Random(1), "policy" if how == "adapter" else ""
    with tempfile.TemporaryDirectory() as folder:
        base.save_pretrained(folder)
        policy = peft.get_peft_model(base, LORA) if adapter else base
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2 if adapter else 3e-3, betas=(0.9, 0.95), weight_decay=0.0)
        with engine(folder, tp) as endpoint, layercast.Publisher() as publisher:
            controller = layercast.Controller(endpoint)
            for step in range(updates + 1):
                sync = "nothing" if how == "not syncing" else synced(controller, publisher, policy, step, adapter)
                if step == updates:
                    break
                chosen = [prompt for prompt in prompts_of.sample(TRAINING, PROMPTS) for _ in range(SAMPLES)]
                reward = learn(policy, optimizer, chosen, sample(controller, chosen, 2 * step, adapter))
                print(f"{how:11}  update {step:3}  reward {reward:.3f}  synced {sync}", flush=True)
            answers = sample(controller, HELD_OUT, 2 * step + 1, adapter)
            return float(rewards_of(HELD_OUT, [answer.tokens for answer in answers]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--tp", type=int, default=1, choices=(1, 2))
    parser.add_argument("--lora", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)  # matrices this small gain nothing from more
    other, words = ("adapter", "with an adapter alone") if given.lora else ("not syncing", "without syncing")
    whole, compared = (run(given.updates, given.tp, how) for how in ("syncing", other))
    print(f"reward on held-out prompts after {given.updates} updates: {whole:.3f}; {compared:.3f} {words}")


if __name__ == "__main__":
    main()

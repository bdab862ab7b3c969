"""Rewards of the answers to one prompt, by reward functions as TRL's users write them. Used by rollout workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence as AbstractSequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Scored:
    """``reward`` is NaN, and ``advantage`` 0, where no function gave one. ``metrics`` are named as TRL logs them."""

    completion: Any
    reward: float
    advantage: float
    metrics: dict[str, float]


def score(
    reward_funcs: AbstractSequence[Callable[..., Any]], row: dict[str, Any], texts: list[str], ids: list[list[int]]
) -> list[Scored]:
    """An advantage is the answer's reward, summed over the functions, less the prompt's mean, over its deviation.

    ``row`` has the ``prompt``, a text or a conversation, and columns for the functions.
    """
    import numpy as np

    talk = not isinstance(row["prompt"], str)
    completions: list[Any] = [[{"role": "assistant", "content": text}] for text in texts] if talk else list(texts)
    columns = {name: [value] * len(texts) for name, value in row.items() if name != "prompt"}
    given = {"prompts": [row["prompt"]] * len(texts), "completions": completions, "completion_ids": ids}
    scores = np.array([reward(**given, **columns) for reward in reward_funcs], dtype=float)
    rewards = np.where(np.isnan(scores).all(0), np.nan, np.nansum(scores, 0))
    known = rewards[~np.isnan(rewards)]
    mean, deviation = (float(known.mean()), float(known.std())) if known.size else (0.0, 0.0)
    advantages = np.nan_to_num((rewards - mean) / (deviation + 1e-8))
    names = [f"rewards/{getattr(reward, '__name__', type(reward).__name__)}" for reward in reward_funcs]
    return [
        Scored(completion, reward, advantage, {"reward": reward, "reward_std": deviation, **dict(zip(names, own))})
        for completion, reward, advantage, own in zip(
            completions, rewards.tolist(), advantages.tolist(), scores.T.tolist(), strict=True
        )
    ]

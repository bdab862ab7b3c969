"""Proofs of what an engine serves: byte by byte against a checkpoint, and by log-probabilities against a policy."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from layercast._native import Version
from layercast.controller import Controller
from layercast.errors import InvalidArgument
from layercast.http.http_engines import HttpEngines, is_http
from layercast.program import answer_of


@dataclass(frozen=True, slots=True)
class Difference:
    """The first byte of a buffer that is not what a cold load has there."""

    rank: int
    tensor: str
    offset: int
    served: int
    expected: int


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether every served byte equals that of a cold load. True as a condition if so."""

    equal: bool
    tensors: int
    nbytes: int
    differences: list[Difference]

    def __bool__(self) -> bool:
        return self.equal


def verify(engine: str, model: str | os.PathLike[str], *, load_format: str = "auto") -> Verification:
    """Holds all that an engine serves against a cold load of a checkpoint, which the engine must be able to read.

    ``engine``: a ``tcp://`` endpoint, or the ``http://`` address of a vLLM server, which stands still meanwhile, and of
    which neither tensors nor bytes are counted. Each rank holds a second copy of its weights. Raises Unavailable,
    NotFound, InvalidArgument.
    """
    if is_http(engine):
        found = HttpEngines([engine]).verify(0, os.path.abspath(model))
        return Verification(not found, 0, 0, [Difference(**difference) for difference in found])
    answer = answer_of(
        "verify", "--engine", engine, "--model", os.path.abspath(model), "--load-format", load_format
    )
    differences = [
        Difference(of["rank"], of["tensor"], of["offset"], of["served"], of["expected"]) for of in answer["differences"]
    ]
    return Verification(answer["equal"], answer["tensors"], answer["bytes"], differences)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Log-probabilities of a policy and of an engine, for the tokens that the engine generated.

    ``largest`` is the largest absolute difference, in nats, at token ``position`` of sequence ``sequence``; ``mean`` the
    mean one. ``versions`` are those that served. Where ``largest`` is above ``tolerance``, ``verification`` says which
    buffers hold other bytes than the policy's weights become, and ``first_difference`` names the first of them; None:
    all bytes are the policy's, so that what differs is computed: the configuration, or the precision of the recipe.
    """

    largest: float
    mean: float
    sequence: int
    position: int
    tolerance: float
    versions: set[Version]
    verification: Verification | None

    @property
    def close(self) -> bool:
        return self.largest <= self.tolerance

    @property
    def first_difference(self) -> str | None:
        if self.verification is None or not self.verification.differences:
            return None
        return min((of.tensor for of in self.verification.differences), key=_in_layer_order)

    def __bool__(self) -> bool:
        return self.close


def compare(
    policy: Any,
    engine: str | Controller,
    tokens: Iterable[Sequence[int]],
    *,
    max_new: int = 16,
    tolerance: float = 0.1,
    timeout: float = 300.0,
) -> Comparison:
    """Holds a policy against what an engine serves, by what each thinks of the same tokens.

    Args:
        policy: a transformers model that is whole on this rank; its forward pass computes the reference, and
            ``save_pretrained`` writes what the bytes are held against, if they must be.
        engine: an engine's endpoint.
        tokens: prompts, as token ids. The engine goes on greedily from each by ``max_new`` tokens.
        tolerance: in nats. Recipes of 8 bits differ by some hundredths, those of 4 bits by more.

    Raises InvalidArgument (no prompt, or an empty one), Unavailable, and what the policy's forward pass raises.
    """
    prompts = [list(prompt) for prompt in tokens]
    if not prompts or not all(prompts):
        raise InvalidArgument("expected prompts of one token or more")
    controller = engine if isinstance(engine, Controller) else Controller(engine)
    sequences = controller.generate(prompts, max_new=max_new, timeout=timeout, ignore_eos=True)
    largest, sum_of, count, where = 0.0, 0.0, 0, (0, 0)
    for number, (prompt, sequence) in enumerate(zip(prompts, sequences, strict=True)):
        for position, (ours, theirs) in enumerate(
            zip(_logprobs(policy, prompt, sequence.tokens), sequence.logprobs, strict=True)
        ):
            difference = abs(ours - theirs)
            if math.isnan(difference):
                difference = math.inf
            sum_of, count = sum_of + difference, count + 1
            if difference > largest:
                largest, where = difference, (number, position)
    versions = {span[2] for sequence in sequences for span in sequence.spans}
    verification = None
    if largest > tolerance:
        with tempfile.TemporaryDirectory(prefix="layercast-compare-") as folder:
            policy.save_pretrained(folder)
            verification = verify(controller.endpoints[0], folder)
    return Comparison(largest, sum_of / max(count, 1), *where, tolerance, versions, verification)


def _in_layer_order(name: str) -> list[tuple[int, str]]:
    """Numbers in names by their value: layer 2 comes before layer 10."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in name.split(".")]


def _logprobs(policy: Any, prompt: list[int], tokens: list[int]) -> list[float]:
    """The policy's log-probabilities of the tokens, in fp32, at temperature 1."""
    import torch

    device = next(policy.parameters()).device
    ids = torch.tensor([prompt + tokens], device=device)
    training = {module: module.training for module in policy.modules()}
    policy.eval()
    try:
        with torch.no_grad():
            logits = policy(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
    finally:
        for module, mode in training.items():
            module.training = mode
    chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(tokens, device=device)[:, None])
    values: list[float] = chosen[:, 0].tolist()
    return values

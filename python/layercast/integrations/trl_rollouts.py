"""The ``rollout_worker`` of TRL's AsyncGRPOTrainer. Users have it from ``layercast.trl``."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from layercast.errors import Cancelled, DeadlineExceeded, InvalidArgument
from layercast.integrations.engines import SAMPLING, sampling, token_ids, version_of
from layercast.integrations.scoring import score
from layercast.integrations.trl_transfer import Transfer


class Rollouts:
    """TRL's ``RolloutWorkerProtocol``: a thread that has the engines answer prompts, scores, and fills the queue.

    Args:
        transfer: whose engines are asked, and whose ``metrics`` the trainer logs.
        dataset: rows with a ``prompt``, a text or a conversation, again and again; other columns go to the rewards.
        reward_funcs: ``f(prompts, completions, completion_ids, **columns)``; a float or None for each completion.
        tokenizer: with a chat template for conversations.
        args: the trainer's ``AsyncGRPOConfig``.
        prompts_per_call: how many prompts the engines answer together, each ``num_generations`` times.
        seed: of the first sample; later ones follow.

    Each sample's ``model_version`` is the version that its tokens came from. Raises InvalidArgument for sampling that
    engines do not have, or of which they do not tell the log-probabilities.
    """

    def __init__(
        self,
        transfer: Transfer,
        dataset: Iterable[dict[str, Any]],
        reward_funcs: Callable[..., Any] | list[Callable[..., Any]],
        tokenizer: Any,
        args: Any,
        *,
        prompts_per_call: int = 8,
        seed: int = 0,
    ) -> None:
        if args.temperature != 1.0:
            raise InvalidArgument(f"temperature: expected 1.0, that of log-probabilities, got {args.temperature}")
        options = {name: getattr(args, name) for name in (*SAMPLING, "max_completion_length")}
        self._sampling = sampling(options, tokenizer.eos_token_id)
        self.rollout_buffer: queue.Queue[Any] = queue.Queue(args.queue_maxsize)
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self._transfer, self._tokenizer, self._args, self._seed = transfer, tokenizer, args, seed
        self._rows, self._prompts_per_call = itertools.cycle(dataset), prompts_per_call
        self._rewards = [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
        self._stopping = threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="layercast-rollouts", daemon=True)

    def start(self) -> None:
        self._seen_at = time.time()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        while self._thread.is_alive():  # it may just be about to ask
            self._transfer.engines.cancel_generating()
            self._thread.join(timeout=0.1)

    def update_model_version(self, model_version: int) -> None:
        self.metrics_queue.put(dict(self._transfer.metrics))

    def check_health(self, stale_after_s: float) -> None:
        """Raises what ended the thread, or DeadlineExceeded after ``stale_after_s`` seconds without an answer."""
        if self._failed is not None:
            raise self._failed
        if time.time() - self._seen_at > stale_after_s:
            raise DeadlineExceeded(f"engines {self._transfer.engines.endpoints}: no rollout in {stale_after_s:g} s")

    def _work(self) -> None:
        try:
            for group_id in itertools.count(step=self._prompts_per_call):
                for sample in self._samples(group_id, list(itertools.islice(self._rows, self._prompts_per_call))):
                    self._put(sample)
        except Exception as error:  # the trainer sees it in check_health
            self._failed = None if self._stopping.is_set() else error

    def _put(self, sample: Any) -> None:
        while not self._stopping.is_set():
            self._seen_at = sample.enqueued_at = time.time()
            try:
                return self.rollout_buffer.put(sample, timeout=0.2)
            except queue.Full:
                continue
        raise Cancelled("the trainer has stopped")

    def _samples(self, group_id: int, rows: list[dict[str, Any]]) -> Iterator[Any]:
        import numpy as np
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        if not rows:
            raise InvalidArgument("dataset: expected rows with a prompt, got none")
        size = self._args.num_generations
        ids = token_ids(self._tokenizer, [row["prompt"] for row in rows], **self._args.chat_template_kwargs or {})
        prompts = [prompt for prompt in ids for _ in range(size)]
        began = time.monotonic()
        answers = self._transfer.engines.generate(prompts, seed=self._seed, **self._sampling)
        generated = sum(len(answer.tokens) for answer in answers)
        self.metrics_queue.put({"layercast/generated_tok_s": (generated, time.monotonic() - began)})
        self._seed += len(prompts)
        for index, (row, prompt) in enumerate(zip(rows, ids, strict=True)):
            group = answers[index * size : (index + 1) * size]
            tokens = [answer.tokens for answer in group]
            texts = self._tokenizer.batch_decode(tokens, skip_special_tokens=True)
            for answer, scored in zip(group, score(self._rewards, row, texts, tokens), strict=True):
                new, version = len(answer.tokens), version_of(answer)
                yield RolloutSample(
                    prompt=row["prompt"],
                    completion=scored.completion,
                    input_ids=np.array(prompt + answer.tokens, dtype=np.int64),
                    completion_mask=np.array([0] * len(prompt) + [1] * new, dtype=np.int64),
                    old_log_probs=np.array([0.0] * len(prompt) + answer.logprobs, dtype=np.float32),
                    advantage=scored.advantage,
                    model_version=version,
                    group_id=group_id + index,
                    metrics={**scored.metrics, "layercast/sampled_version": float(version)},
                )

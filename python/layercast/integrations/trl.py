"""TRL's GRPOTrainer takes its rollouts from Layercast's engines. For AsyncGRPOTrainer: Transfer and Rollouts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from layercast.closing import OfOneProcess
from layercast.controller import Sequence
from layercast.errors import InvalidArgument, Unsupported
from layercast.integrations.engines import SAMPLING, Engines, sampling, token_ids, version_of
from layercast.integrations.ranks import from_all, from_main
from layercast.integrations.trl_rollouts import Rollouts
from layercast.integrations.trl_transfer import Transfer
from layercast.publisher import Publisher

__all__ = ["Generation", "Rollouts", "Transfer", "generation"]


@contextmanager
def generation(engines: str | Iterable[str], **options: Any) -> Iterator[Generation]:
    """Within it, a ``GRPOTrainer`` that is built with ``use_vllm=True, vllm_mode="server"`` samples from engines.

    Yields what takes the place of TRL's ``VLLMGeneration``; ``options`` are those of :class:`Generation`::

        with layercast.trl.generation("tcp://127.0.0.1:7800") as engines:
            trainer = GRPOTrainer(policy, reward, args=args, train_dataset=prompts, rollout_func=engines.rollout_func)
            trainer.train()

    ``rollout_func`` may be left out. With it, reward functions get each sample's ``version``, and the trainer logs
    ``metrics``; with ``use_vllm=False`` it works too, but TRL then computes no importance-sampling ratio.
    """
    from trl.trainer import grpo_trainer

    with Generation(engines, **options) as made:
        theirs = grpo_trainer.VLLMGeneration
        grpo_trainer.VLLMGeneration = made.attach
        try:
            yield made
        finally:
            grpo_trainer.VLLMGeneration = theirs


class Generation(OfOneProcess):
    """Duck type of TRL's ``VLLMGeneration`` for one trainer, on each of its ranks.

    Args:
        engines: endpoints of ``layercast serve``.
        bind, secret, insecure, lineage: as :class:`layercast.Publisher` takes them. A version's step counts the syncs.
        all_or_none: either all engines commit a version, or none does.
        timeout: seconds that a reload, or a batch of rollouts, may take.
        seed: of the first sample; later ones follow.

    ``metrics`` is of the newest sync and batch, ``versions`` has the step of each sample of the latest batch.
    """

    def __init__(
        self,
        engines: str | Iterable[str],
        *,
        bind: str = "tcp://127.0.0.1:0",
        secret: str = "",
        insecure: bool = False,
        lineage: str = "policy",
        all_or_none: bool = True,
        timeout: float = 300.0,
        seed: int = 0,
    ) -> None:
        self.metrics: dict[str, float] = {}
        self.versions: list[int] = []
        self.vllm_client = self
        self._engines = Engines(engines, timeout=timeout)
        self._publisher = Publisher(bind, secret=secret, insecure=insecure, lineage=lineage)
        self._all_or_none, self._seed = all_or_none, seed
        self._step, self._synced_at = 0, -1

    def attach(self, model: Any, accelerator: Any, processing_class: Any, *, mode: str, **options: Any) -> Generation:
        """As TRL makes its class. Raises InvalidArgument for what engines cannot do, Unavailable for a dead one."""
        if mode != "server":
            raise InvalidArgument(f"vllm_mode: expected 'server', as engines are processes, got '{mode}'")
        self._model, self._accelerator = model, accelerator
        names = (*SAMPLING, "max_completion_length", "structured_outputs_regex", "generation_kwargs")
        eos = getattr(processing_class, "tokenizer", processing_class).eos_token_id
        self._sampling = sampling({name: options.get(name) for name in names}, eos)
        self._from_main(self._engines.check_reachable)
        return self

    def get_server_info(self) -> dict[str, Any]:
        """TRL warns where log-probabilities are not of the distribution that was sampled from: they are so at 1."""
        raw = (self._sampling["temperature"], self._sampling["top_p"], self._sampling["top_k"]) != (1.0, 1.0, 0)
        return {"model_config": {"logprobs_mode": "raw_logprobs" if raw else "processed_logprobs"}}

    def sync_weights(self) -> None:
        """Each rank publishes what it holds, and the engines take it. A failure raises on all ranks."""
        self._step += 1
        began = time.perf_counter()
        endpoints = [endpoint for endpoint in from_all(self._publish) if endpoint]
        self.metrics["layercast/publish_s"] = time.perf_counter() - began
        self.metrics |= self._from_main(lambda: self._engines.reload(endpoints, self._all_or_none))

    def generate(
        self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None
    ) -> tuple[list[list[int]], list[list[int]], list[list[list[float]]], list[list[list[int]]]]:
        """TRL has repeated each prompt. Returns prompts, completions, and each token's log-probability and id."""
        if images is not None:
            raise Unsupported("images: Layercast's engines read tokens alone")
        with profiler or nullcontext():
            answers = self._sample(prompts)
        tokens, logprobs = [answer.tokens for answer in answers], [answer.logprobs for answer in answers]
        return prompts, tokens, [[[one] for one in of] for of in logprobs], [[[one] for one in of] for of in tokens]

    def rollout_func(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """For ``GRPOTrainer(rollout_func=...)``: a completion for each prompt, and the ``version`` it came from."""
        if not trainer.use_vllm and trainer.state.global_step != self._synced_at:
            options = {name: getattr(trainer, name) for name in (*SAMPLING, "max_completion_length")}
            self.attach(trainer.model, trainer.accelerator, trainer.processing_class, mode="server", **options)
            self.sync_weights()
            self._synced_at = trainer.state.global_step
        ids = token_ids(trainer.processing_class, prompts)
        answers = self._sample(ids)
        for name, value in self.metrics.items():
            trainer._log_metric(name, value)
        tokens, logprobs = [answer.tokens for answer in answers], [answer.logprobs for answer in answers]
        return {"prompt_ids": ids, "completion_ids": tokens, "logprobs": logprobs, "version": self.versions}

    def close(self) -> None:
        self._engines.close()
        self._publisher.close()

    def _publish(self) -> str | None:
        published = self._publisher.publish(self._model, step=self._step)
        return None if published is None else published.endpoint

    def _sample(self, prompts: list[list[int]]) -> list[Sequence]:
        """The main process asks for all ranks, so that engines see one batch."""
        everybody = from_all(lambda: prompts)
        of_all = [prompt for of_rank in everybody for prompt in of_rank]
        began = time.perf_counter()
        answers = self._from_main(lambda: self._engines.generate(of_all, seed=self._seed, **self._sampling))
        self._seed += len(of_all)
        first = sum(map(len, everybody[: self._accelerator.process_index]))
        mine: list[Sequence] = answers[first : first + len(prompts)]
        self.versions = [version_of(answer) for answer in mine]
        self.metrics["layercast/generate_s"] = time.perf_counter() - began
        return mine

    def _from_main(self, call: Callable[[], Any]) -> Any:
        return from_main(call, self._accelerator.is_main_process)

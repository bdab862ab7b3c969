"""The ways in which an engine gets new weights: three of vLLM's own, and two of Layercast."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer import Trainer

LAYERCAST = ("Layercast", "Layercast, borrowed")

class Calls:
    """A ``vllm.LLM``, and how long its calls that a sync made have taken: nothing is generated meanwhile."""

    def __init__(self, llm: Any) -> None:
        self.llm_engine = llm.llm_engine
        self._llm = llm
        self.seconds = 0.0

    def collective_rpc(self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return self._timed(lambda: self._llm.collective_rpc(method, args=args, kwargs=kwargs or {}))

    def reset_prefix_cache(self) -> Any:
        return self._timed(self._llm.reset_prefix_cache)

    def _timed(self, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return call()
        finally:
            self.seconds += time.perf_counter() - began


class Ways:
    """Each way takes the trainer's newest weights, returns when the engine serves them, and says how many bytes came
    to one rank over a wire. One thread only."""

    def __init__(self, calls: Calls, trainer: Trainer, folder: Path, weights: Path, ranks: int) -> None:
        self._calls = calls
        self._trainer = trainer
        self._folder = folder
        self._weights = weights
        self._placed = trainer.call("placed")
        self._bytes = weights.stat().st_size
        self._endpoint = ""
        self.channels: dict[str, str] = {}
        self.reloaded: dict[str, str] = {}  # layers that Layercast leaves to vLLM's code, and why
        self._open_gloo(ranks)
        self.names: dict[str, Callable[[], int]] = {
            "vLLM, by path": self.by_path,
            "vLLM, by iterator": self.by_iterator,
            "gloo broadcast, load_weights": self.by_gloo,
            LAYERCAST[0]: self.by_layercast,
            LAYERCAST[1]: self.by_layercast_borrowed,
        }

    def by_path(self) -> int:
        self._trainer.call("save", folder=str(self._folder))
        self._calls.collective_rpc("reload_weights", kwargs={"weights_path": str(self._folder)})
        self._calls.reset_prefix_cache()
        return 0

    def by_iterator(self) -> int:
        self._calls.collective_rpc("bench_iterator", (str(self._weights), self._placed))
        self._calls.reset_prefix_cache()
        return 0

    def by_gloo(self) -> int:
        names, dtypes, shapes, _ = map(list, zip(*self._placed))
        self._trainer.send("broadcast")
        self._calls.collective_rpc("bench_gloo", ({"names": names, "dtypes": dtypes, "shapes": shapes},))
        self._trainer.answer()
        self._calls.reset_prefix_cache()
        return self._bytes

    def open_layercast(self) -> None:
        """Once: buffers are adopted, and checked. Not part of a sync."""
        from layercast.vllm.sync import of_llm

        self._endpoint = self._trainer.call("endpoint")
        self._layercast = of_llm(self._calls)

    def by_layercast(self) -> int:
        self._trainer.call("publish")
        received = self._reload(LAYERCAST[0])
        self._trainer.call("withdraw")
        return received

    def by_layercast_borrowed(self) -> int:
        self._trainer.call("lend")
        received = self._reload(LAYERCAST[1])
        self._trainer.call("take_back")
        return received

    def _reload(self, name: str) -> int:
        answers = self._layercast.reload(endpoint=self._endpoint)
        self.reloaded = {path: why for answer in answers for path, why in answer["reloaded"].items()}
        self.channels[name] = answers[0]["report"]["channel"]["name"]
        return max(int(answer["report"]["bytes"]) for answer in answers)

    def _open_gloo(self, ranks: int) -> None:
        port = self._trainer.call("listen")
        self._trainer.send("join", size=ranks + 1)
        self._calls.collective_rpc("bench_open_gloo", (port,))
        self._trainer.answer()

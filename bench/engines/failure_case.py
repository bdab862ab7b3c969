"""One engine of two ranks, of which one fails within a sync: a child of failures.py, which writes down what happened.

    failure_case.py <layercast|vllm> <checkpoint> <folder> <seconds>

The result is written anew after every step, so that a child that hangs leaves what it knows.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faults
from case import answer_of, engine
from trainer import Trainer
from ways import Calls

REQUESTS = 4  # asked after the failure
_TOKENS = 8
_NONE = {"old": 0, "new": 0, "mixed": 0, "refused": 0, "asked": 0}
_GLOO_TIMEOUT = 20.0


class Vllm:
    """vLLM's own: start_weight_update, update_weights with a gloo broadcast, finish_weight_update."""

    backend = "bench_gloo"

    def __init__(self, llm: Any, trainer: Trainer, ask: Callable[[], None]) -> None:
        self._llm = llm
        self._trainer = trainer
        self.open()

    def open(self) -> None:
        port = self._trainer.call("listen")
        self._trainer.send("join", size=3, timeout=_GLOO_TIMEOUT)
        self._llm.init_weight_transfer_engine({"init_info": {"port": port, "timeout": _GLOO_TIMEOUT}})
        self._trainer.answer()

    def sync(self) -> None:
        names, dtypes, shapes, _ = map(list, zip(*self._trainer.call("placed")))
        self._llm.start_weight_update()
        self._trainer.send("broadcast")
        try:
            self._llm.update_weights({"update_info": {"names": names, "dtypes": dtypes, "shapes": shapes}})
        finally:
            self._trainer.answer()
        self._llm.finish_weight_update("1")
        self._llm.reset_prefix_cache()


class Layercast:
    backend = "layercast"

    def __init__(self, llm: Any, trainer: Trainer, ask: Callable[[], None]) -> None:
        from layercast.vllm.sync import of_llm

        self._trainer = trainer
        self._endpoint = trainer.call("endpoint")
        self._engine = of_llm(_Asking(llm, ask))

    def open(self) -> None:
        """Nothing is to be opened again after a failure."""

    def sync(self) -> None:
        self._trainer.call("publish")
        self._engine.reload(endpoint=self._endpoint)
        self._trainer.call("withdraw")


class _Asking(Calls):
    """Asks for an answer whenever the ranks were asked whether they have staged."""

    def __init__(self, llm: Any, ask: Callable[[], None]) -> None:
        super().__init__(llm)
        self._ask = ask

    def collective_rpc(self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        answers = super().collective_rpc(method, args, kwargs)
        if args and args[0] in ("stage", "state"):
            self._ask()
        return answers


class _Case:
    def __init__(self, side: str, checkpoint: Path, folder: Path) -> None:
        self._armed = Path(os.environ[faults.ARMED])
        self._result = folder / "result.json"
        self.seen: dict[str, Any] = {**_NONE, "sync": "hung", "next": "hung"}
        self._known: dict[tuple[int, ...], str] = {}
        self._folder = folder
        self._trainer = Trainer(checkpoint, Path(f"/dev/shm/layercast-bench-{os.getpid()}"), 1, dict(os.environ))
        kind = Vllm if side == "vllm" else Layercast
        self._llm = engine(checkpoint, "none", 2, kind.backend)
        self._sync = kind(self._llm, self._trainer, self._ask)

    def run(self) -> None:
        for weights, name in ((1, "old"), (2, "new"), (1, "old")):
            self._serve(weights)
            self._known[self._answer()] = name
        if len(self._known) != 2:
            raise RuntimeError(f"expected two versions with an answer each, the same each time, got {self._known}")
        self.seen.update(_NONE)
        self.seen["asked"] = REQUESTS  # those after the sync wait behind one that hangs
        self._armed.touch()
        self.seen["sync"] = self._outcome(lambda: self._serve(2))
        self.seen["asked"] -= REQUESTS
        for _ in range(REQUESTS):
            self._ask()
        self._armed.unlink(missing_ok=True)
        self.seen["next"] = self._outcome(self._again)
        self._write()

    def _again(self) -> None:
        self._sync.open()
        self._serve(2)
        if self._known.get(self._answer()) != "new":
            raise RuntimeError("served, with wrong answers")

    def _serve(self, weights: int) -> None:
        self._trainer.call("renew", seed=weights)
        self._sync.sync()

    def _outcome(self, work: Callable[[], None]) -> str:
        self._write()
        try:
            work()
            outcome = "served"
        except Exception as error:  # noqa: BLE001  it is the result
            outcome = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        return outcome

    def _answer(self) -> tuple[int, ...]:
        return tuple(answer_of(self._llm, _TOKENS))

    def _ask(self) -> None:
        if not self._known:
            return  # the versions' own answers are not known yet
        self.seen["asked"] += 1
        self._write()
        try:
            self.seen[self._known.get(self._answer(), "mixed")] += 1
        except Exception:  # noqa: BLE001  the one who asked is told
            self.seen["refused"] += 1
        self._write()

    def _write(self) -> None:
        self._result.write_text(json.dumps(self.seen))


def main() -> None:
    side, checkpoint, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    faulthandler.dump_traceback_later(0.9 * float(sys.argv[4]))  # where it hangs
    _Case(side, checkpoint, folder).run()
    os._exit(0)  # an engine that has failed may never end


if __name__ == "__main__":
    main()

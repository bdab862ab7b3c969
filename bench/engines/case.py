"""One engine, one trainer, all ways in turn: a child of the bench, which prints what it measured as JSON.

    case.py '{"model": "small", "recipe": "none", "ranks": 1, "rounds": 3, "threads": 2}' <checkpoint> <folder>
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import environment
from memory import Peak, level
from trainer import Trainer
from ways import LAYERCAST, Calls, Ways


def engine(checkpoint: Path, recipe: str, ranks: int, backend: str) -> Any:
    from vllm import LLM

    return LLM(
        model=str(checkpoint),
        weight_transfer_config={"backend": backend},
        quantization=None if recipe == "none" else recipe,
        tensor_parallel_size=ranks,
        dtype="bfloat16",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=64,
        max_num_seqs=4,
        load_format="safetensors",
    )


def answer_of(llm: Any, tokens: int = 1) -> list[int]:
    from vllm import SamplingParams

    wanted = SamplingParams(max_tokens=tokens, temperature=0, detokenize=False, ignore_eos=True)
    return list(llm.generate([{"prompt_token_ids": [1, 5, 7]}], wanted, use_tqdm=False)[0].outputs[0].token_ids)


class _Case:
    def __init__(self, llm: Any, trainer: Trainer, folder: Path, weights: Path, ranks: int) -> None:
        self._llm = llm
        self._trainer = trainer
        self._reference = folder / "reference"
        self._calls = Calls(llm)
        self._ways = Ways(self._calls, trainer, folder / "saved", weights, ranks)
        self._held = dict.fromkeys(self._ways.names, 0)
        self.equal: dict[str, bool] = {}
        self.samples: dict[str, list[dict[str, float]]] = {name: [] for name in self._ways.names}

    def first(self) -> None:
        """Each way once: what it keeps from then on, and whether it gives the bytes of vLLM's reload by path."""
        for name, way in self._ways.names.items():
            before = level(os.getpid())
            if name == LAYERCAST[0]:
                self._ways.open_layercast()
            self._trainer.call("step")
            way()
            if name == LAYERCAST[0]:  # a receiver's memory is there for the next sync
                self._held.update(dict.fromkeys(LAYERCAST, max(0, level(os.getpid()) - before)))
            self.equal[name] = self._is_equal()

    def turn(self, turn: int) -> None:
        names = list(self._ways.names)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            self._trainer.call("step")
            self.samples[name].append(self._sample(name))
            answer_of(self._llm)  # it serves

    def describe(self) -> dict[str, Any]:
        threads = self._llm.collective_rpc("bench_threads")
        return {"equal": self.equal, "samples": self.samples, "worker_threads": threads,
                "reloaded": self._ways.reloaded, "channels": self._ways.channels}  # fmt: skip

    def _sample(self, name: str) -> dict[str, float]:
        self._calls.seconds = 0.0
        with Peak() as peak:
            began = time.perf_counter()
            received = self._ways.names[name]()
            served = time.perf_counter() - began
        return {
            "served": served,
            "blocked": self._calls.seconds,
            "peak": peak.rise + self._held[name],
            "received": received,
        }

    def _is_equal(self) -> bool:
        """Whether vLLM, its weights set to zero, loads the same bytes from the trainer's file."""
        got = self._llm.collective_rpc("compute_weight_checksums")
        self._trainer.call("save", folder=str(self._reference))
        self._llm.collective_rpc("reset_weights")
        zeros = self._llm.collective_rpc("compute_weight_checksums")
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(self._reference)})
        expected = self._llm.collective_rpc("compute_weight_checksums")
        return bool(got == expected and got != zeros)


def measure(options: dict[str, Any], checkpoint: Path, folder: Path) -> dict[str, Any]:
    ranks, threads = options["ranks"], options["threads"]
    weights = Path("/dev/shm") / f"layercast-bench-{os.getpid()}"
    try:
        with Trainer(checkpoint, weights, threads, dict(os.environ)) as trainer:
            llm = engine(checkpoint, options["recipe"], ranks, "layercast")
            answer_of(llm)
            case = _Case(llm, trainer, folder, weights, ranks)
            case.first()
            for turn in range(options["rounds"]):
                case.turn(turn)
            return {"bytes": weights.stat().st_size, **case.describe()}
    finally:
        weights.unlink(missing_ok=True)


def main() -> None:
    options = json.loads(sys.argv[1])
    checkpoint, folder = Path(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(exist_ok=True)
    result = folder / "result.json"
    try:
        measured = measure(options, checkpoint, folder)
    except BaseException as error:  # noqa: BLE001  the parent prints it as a row that did not run
        measured = {"error": f"{type(error).__name__}: {error}"}
        result.write_text(json.dumps(measured))
        raise
    result.write_text(json.dumps(measured))
    os._exit(0)  # an engine's end may take a minute, and tells nothing


if __name__ == "__main__":
    if environment.HERE != Path(sys.path[0]).resolve():
        sys.path.insert(0, str(environment.HERE))
    main()

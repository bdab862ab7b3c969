"""The trainer: a process that has new weights, and hands them over in whichever way it is told to, line by line.

It reads JSON from its standard input, one object a line, and answers each on its standard output: {"error": ...}, or
what the command returns. Its weights lie in shared memory, where those who load through an iterator find them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

_TIMEOUT = 120.0


class Trainer:
    """A trainer as its parent sees it. One thread only; a context manager."""

    def __init__(self, checkpoint: Path, weights: Path, threads: int, environment: dict[str, str]) -> None:
        arguments = [sys.executable, __file__, str(checkpoint), str(weights), str(threads)]
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def send(self, command: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps({"do": command, **arguments}), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the trainer has ended"}
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def call(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.answer()


class _Process:
    def __init__(self, checkpoint: Path, weights: Path, threads: int) -> None:
        import layercast
        import torch
        from safetensors.torch import load_file

        from wire import mapped, place

        torch.set_num_threads(threads)
        self._checkpoint = checkpoint
        loaded = load_file(checkpoint / "model.safetensors")
        self._placed = place(loaded)
        self._tensors = mapped(weights, self._placed)
        for name, tensor in loaded.items():
            self._tensors[name].copy_(tensor)
        self._publisher = layercast.Publisher(threads=threads)
        self._borrowed = ExitStack()
        self._steps = 0

    def placed(self) -> list[Any]:
        """Names, dtypes, shapes and offsets."""
        return self._placed

    def step(self) -> int:
        """New weights, of which no piece has bytes that an earlier version had."""
        self._steps += 1
        for tensor in self._tensors.values():
            tensor.mul_(-1.0625 if self._steps % 2 else -0.94)
        return self._steps

    def renew(self, seed: int) -> int:
        """The weights of this seed, random as those of ``step`` are not."""
        import torch

        random = torch.Generator().manual_seed(seed)
        for tensor in self._tensors.values():
            tensor.normal_(0.0, 0.2, generator=random)
        self._steps += 1
        return self._steps

    def save(self, folder: str) -> None:
        from safetensors.torch import save_file

        Path(folder).mkdir(exist_ok=True)
        save_file(self._tensors, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(self._checkpoint / "config.json", folder)

    def listen(self) -> int:
        import torch.distributed as dist

        self._store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=_TIMEOUT), False)
        return int(self._store.port)

    def join(self, size: int, timeout: float = _TIMEOUT) -> None:
        from wire import Group

        self._group = Group(self._store, 0, size, timeout)

    def broadcast(self) -> None:
        for tensor in self._tensors.values():
            self._group.broadcast(tensor)

    def endpoint(self) -> str:
        return str(self._publisher.endpoint)

    def publish(self) -> None:
        self._published = self._publisher.publish(self._tensors, step=self._steps)

    def withdraw(self) -> None:
        """The version's copy is not kept for engines that come late: there are none."""
        self._published.withdraw()
        self._published.wait()

    def lend(self) -> None:
        """Publishes without a copy; then nothing may be written until they are given back."""
        self._borrowed.enter_context(self._publisher.borrowed(self._tensors, step=self._steps))

    def take_back(self) -> None:
        self._borrowed.close()


def _serve(checkpoint: str, weights: str, threads: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be among the answers
    process = _Process(Path(checkpoint), Path(weights), int(threads))
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(process, command.pop("do"))(**command)
        except Exception as error:  # noqa: BLE001  the parent decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])

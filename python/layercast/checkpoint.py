"""Weights on disk: checkpoints, in every format that Layercast reads, without a copy where the format allows it; and
durable stores of versions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from layercast import _native
from layercast._native import Version, VersionList
from layercast.tensor import Tensor, TensorSpec


class Checkpoint(Mapping[str, Tensor]):
    """The tensors of a folder or file: safetensors, torch.save's ``.bin``, GGUF, and the others of docs/checkpoints.md.

    Opening reads headers alone. A tensor's bytes are mapped, or read when it is asked for. Iterating gives names, as of
    a dict; :meth:`walk` goes through the tensors in the order of the files, reading a little ahead.

    >>> checkpoint = layercast.Checkpoint("Qwen3-0.6B")
    >>> checkpoint["model.norm.weight"]
    Tensor(BF16, [1024])

    Raises NotFound, Corrupt.
    """

    def __init__(self, path: str | os.PathLike[str], *, load_format: str = "auto") -> None:
        self._native = _native.Checkpoint(os.fspath(path), load_format)
        self.specs = [TensorSpec(*spec) for spec in self._native.specs()]

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return self._native.total_bytes

    @property
    def config(self) -> str:
        """The text of the model's config.json as far as the files know it; empty if they know nothing."""
        return self._native.config

    def walk(self) -> Iterator[tuple[str, Tensor]]:
        """``(name, tensor)``, in the order of the files: what :meth:`Receiver.reload_weights` takes."""
        for name, dtype, shape, data in self._native.walk():
            yield name, Tensor(dtype, shape, data)

    def __getitem__(self, name: str) -> Tensor:
        _, dtype, shape, data = self._native.tensor(name)
        return Tensor(dtype, shape, data)

    def __iter__(self) -> Iterator[str]:
        return (spec.name for spec in self.specs)

    def __len__(self) -> int:
        return len(self.specs)


class Store:
    """The store in a folder, by its path: a source of reloads, and what it has.

    ``Publisher(store=...)`` writes it. Calls raise NotFound if there is none, and Unavailable if its file system fails.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self._native = _native.Store(self.path)

    def versions(self) -> VersionList:
        """Those that are whole, with the newest last; their ``added_bytes`` are of files."""
        return self._native.versions()

    def pin(self, version: Version | str, pinned: bool = True) -> VersionList:
        """Exempts a version (or one that is called so: "run-17@41", digits of its digest) from eviction, or no longer."""
        return self._native.pin(self._found(version), pinned)

    def evict(self, version: Version | str) -> VersionList:
        """Nobody begins to take the version any more; its files go minutes later, when nobody reads it."""
        return self._native.evict(self._found(version))

    def check(self) -> dict[str, list[str]]:
        """Reads every byte. What is wrong with each version, by its name; nothing, if all is as it was published."""
        return self._native.check()

    def _found(self, version: Version | str) -> Version:
        return self.versions().named(version).version if isinstance(version, str) else version

    def __repr__(self) -> str:
        return f"Store({self.path!r})"

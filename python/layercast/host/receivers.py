"""The receivers of one rank, for an engine of which some layers are made by its own code at a commit."""

from __future__ import annotations

from typing import Any

import torch

from layercast._native import Version
from layercast.dtypes import torch_dtype
from layercast.errors import Cancelled
from layercast.receiver import Receiver
from layercast.recording import Recording
from layercast.report import Report


class Receivers:
    """One receiver writes the engine's tensors, at the commit. Another one writes ``staged``, memory of its own, in
    :meth:`prepare`: so the engine's code can make kernel tensors of it while the old version is served.

    Both stage one version. One call at a time, but for :meth:`cancel`.
    """

    def __init__(
        self,
        live: Recording,
        buffers: dict[str, torch.Tensor],
        beside: Recording,
        *,
        engine: str,
        quantization: str,
        **options: Any,
    ) -> None:
        self.staged = memory_for(beside)
        self._live = Receiver(live, buffers=buffers, engine=engine, quantization=quantization, **options)
        self._beside: Receiver | None = None
        if self.staged:
            self._beside = Receiver(beside, buffers=self.staged, engine=f"{engine}-beside", **options)
        self._all = [receiver for receiver in (self._beside, self._live) if receiver is not None]
        self._filled = False  # what is staged beside is in its memory
        self._cancelled = False

    def stage(self, publishers: list[str], **version: Any) -> None:
        """As :meth:`layercast.Receiver.stage`."""
        self._filled = self._cancelled = False
        for receiver in self._all:
            if self._cancelled:
                raise Cancelled("the staging was given up")
            receiver.stage(publishers, **version)

    def prepare(self) -> None:
        """The last chance to refuse. When it returns, ``staged`` has the version."""
        self._live.prepare()
        if self._beside is not None and not self._filled:
            self._beside.commit()
        self._filled = True

    def commit(self) -> None:
        self._live.commit()

    def abort(self) -> None:
        for receiver in self._all:
            receiver.abort()

    def cancel(self) -> None:
        self._cancelled = True
        for receiver in self._all:
            receiver.cancel()

    def verify(self) -> None:
        for receiver in self._all:
            receiver.verify()

    def close(self) -> None:
        for receiver in self._all:
            receiver.close()

    @property
    def version(self) -> Version | None:
        return self._live.version

    @property
    def torn(self) -> bool:
        return self._live.torn

    @property
    def report(self) -> Report:
        """Of the engine's tensors."""
        return self._live.report


def memory_for(part: Recording) -> dict[str, torch.Tensor]:
    return {spec.name: torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in part.parameters}

"""Layercast: moves a policy's new weights from an RL trainer into inference engines that keep running.

On the trainer's side::

    publisher = layercast.Publisher("tcp://127.0.0.1:7700")
    publisher.publish(policy, step=step)
    layercast.Controller(["tcp://127.0.0.1:7800"]).reload(publisher)

On the engine's side, on each rank::

    receiver = layercast.Receiver(model_dir, quantization="fp8_per_channel", buffers=my_named_tensors)
    report = receiver.reload_weights("tcp://127.0.0.1:7700")

Importing takes milliseconds, starts no thread and imports neither torch nor numpy.
"""

from __future__ import annotations

import atexit as _atexit
import importlib as _importlib
import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

from layercast import _native
from layercast._native import KeptVersion, Version, VersionList
from layercast.adapter_receiver import AdapterPart, AdapterReceiver, AdapterTerm, LoadedAdapter, adapter_parts
from layercast.checkpoint import Checkpoint, Store
from layercast.control.canary import Canary
from layercast.control.outcomes import EngineOutcome
from layercast.controller import Controller, Sequence, Span
from layercast.errors import (
    Cancelled,
    Corrupt,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
    Unsupported,
)
from layercast.noise.noise import Noise, NoiseStages
from layercast.offered import RemotePublisher
from layercast.plan import LoadPlan, Placement
from layercast.progress import Progress
from layercast.publisher import Published, Publisher
from layercast.recipes import dequantize, known_recipes, quantize
from layercast.receiver import Receiver, buffer_specs
from layercast.recording import Box, Copy, Recording
from layercast.report import Report
from layercast.tensor import Tensor, TensorSpec
from layercast.proofs import Comparison, Verification, compare, verify

__version__: str = _native.__version__

__all__ = [
    "AdapterPart",
    "AdapterReceiver",
    "AdapterTerm",
    "Box",
    "Canary",
    "Cancelled",
    "Checkpoint",
    "Comparison",
    "Controller",
    "Copy",
    "Corrupt",
    "DeadlineExceeded",
    "EngineOutcome",
    "Error",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "KeptVersion",
    "LoadPlan",
    "LoadedAdapter",
    "Noise",
    "NoiseStages",
    "NotFound",
    "PermissionDenied",
    "Placement",
    "Progress",
    "Published",
    "Publisher",
    "Receiver",
    "Recording",
    "RemotePublisher",
    "Report",
    "ResourceExhausted",
    "Sequence",
    "Span",
    "Store",
    "Tensor",
    "TensorSpec",
    "Unavailable",
    "Unsupported",
    "Verification",
    "Version",
    "VersionList",
    "adapter_parts",
    "buffer_specs",
    "compare",
    "dequantize",
    "known_recipes",
    "quantize",
    "verify",
]


# Trainers' integrations lie in a folder of their own; users import them as layercast.trl, layercast.ray, ...
__path__.append(_os.path.join(_os.path.dirname(__file__), "integrations"))

if _TYPE_CHECKING:
    from layercast.integrations import megatron as megatron, nemo_rl as nemo_rl, openrlhf as openrlhf
    from layercast.integrations import prime_rl as prime_rl, ray as ray, skyrl as skyrl, slime as slime, trl as trl, verl as verl
else:

    def __getattr__(name: str) -> object:
        """An integration, imported when it is first named."""
        if name not in ("megatron", "nemo_rl", "openrlhf", "prime_rl", "ray", "skyrl", "slime", "trl", "verl"):
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return _importlib.import_module(f"{__name__}.{name}")


@_atexit.register
def _end() -> None:
    """Ends the threads of publishers and receivers that are alive, while there still is an interpreter for them."""
    from layercast import logs

    _native.close_all()
    logs.stop()

"""Which modules only wrap another one, and so are no part of a checkpoint's names. A class is looked for where its
package defines it, and only if that package was imported: else nothing can be an instance of it."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

# class -> the child that it wraps. A name alone says nothing: a model may have an attribute called `module`.
_WRAPPERS = {
    ("torch._dynamo.eval_frame", "OptimizedModule"): "_orig_mod",
    ("torch.nn.parallel.distributed", "DistributedDataParallel"): "module",
    ("torch.nn.parallel.data_parallel", "DataParallel"): "module",
    ("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "ActivationWrapper"): "_checkpoint_wrapped_module",
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"): "_fsdp_wrapped_module",
    ("peft.peft_model", "PeftModel"): "base_model",
    ("peft.tuners.tuners_utils", "BaseTuner"): "model",
}
# Segments of names that nothing but a wrapper has; for state dicts, where there is no module to ask.
_SEGMENTS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def loaded_class(module: str, name: str) -> type[Any] | None:
    """A class of a package that may not be there."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def is_a(module: nn.Module, package: str, name: str) -> bool:
    """isinstance() by the real type, which a wrapper may hide behind the type of what it wraps."""
    found = loaded_class(package, name)
    return found is not None and issubclass(type(module), found)


class Wrappers:
    """The wrappers that this process can have."""

    def __init__(self) -> None:
        self._children: dict[type[Any], str | None] = {}
        classes = ((loaded_class(module, name), child) for (module, name), child in _WRAPPERS.items())
        self._known = [(found, child) for found, child in classes if found is not None]

    def child(self, module: nn.Module) -> nn.Module | None:
        """What a wrapper wraps; None: it is none."""
        kind = type(module)
        if kind not in self._children:
            self._children[kind] = next((child for found, child in self._known if issubclass(kind, found)), None)
        name = self._children[kind]
        return None if name is None else module._modules[name]

    def unwrapped(self, module: nn.Module) -> nn.Module:
        while (child := self.child(module)) is not None:
            module = child
        return module


def unwrapped_name(name: str) -> str:
    """A state dict's name without the segments of wrappers. `module.` stays, for a model may have that attribute."""
    for segment in _SEGMENTS:
        name = name.replace(segment, "")
    return name

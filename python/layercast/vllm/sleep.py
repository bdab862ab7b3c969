"""Whether vLLM has unmapped the weights of this worker (its sleep mode): writing to them would end the process."""

from __future__ import annotations

import functools
from typing import Any


def asleep() -> bool:
    """True between ``sleep`` and the ``wake_up`` that maps the weights again."""
    allocator = getattr(_allocators(), "instance", None)
    if allocator is None:
        return False
    return any(data.is_asleep and data.tag == "weights" for data in allocator.pointer_to_data.values())


@functools.cache
def _allocators() -> Any:
    """vLLM's class of the allocator that can unmap; None where there is no CUDA driver for it."""
    try:
        from vllm.device_allocator.cumem import CuMemAllocator
    except ImportError:
        return None
    return CuMemAllocator

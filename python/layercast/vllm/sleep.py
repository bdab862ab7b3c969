"""Whether vLLM has unmapped the weights of this worker (its sleep mode): writing to them would end the process."""

from __future__ import annotations


def asleep() -> bool:
    """True between ``sleep`` and the ``wake_up`` that maps the weights again."""
    try:
        from vllm.device_allocator.cumem import CuMemAllocator
    except ImportError:  # a build of vLLM without it
        return False
    allocator = CuMemAllocator.instance
    if allocator is None:
        return False
    return any(data.is_asleep and data.tag == "weights" for data in allocator.pointer_to_data.values())

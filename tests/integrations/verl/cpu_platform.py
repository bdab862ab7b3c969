"""A machine without accelerators as a platform of verl's, which has none for it: what its FSDP2 engine and workers need. In the
processes of the tests by VERL_USE_EXTERNAL_MODULES."""

import os
import types

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import set_platform

MEMORY = ("memory_reserved", "memory_allocated", "max_memory_reserved", "max_memory_allocated", "empty_cache", "ipc_collect",
          "reset_peak_memory_stats")
DEVICE = types.SimpleNamespace(**vars(torch.cpu), **dict.fromkeys(MEMORY, lambda: 0), mem_get_info=lambda: (0, 0))


def attribute(value):
    return property(lambda self: value)


class Cpu(PlatformBase):
    device_name, vendor_name, device_module = attribute("cpu"), attribute("none"), attribute(DEVICE)

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return os.cpu_count()

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self):
        return "CPU"

    def ray_resource_options(self, num_gpus):
        return {"num_cpus": num_gpus}

    def nothing(self, *arguments, **options):
        return None


for name in PlatformBase.__abstractmethods__:
    if name not in vars(Cpu):
        setattr(Cpu, name, Cpu.nothing)
Cpu.__abstractmethods__ = frozenset()
set_platform(Cpu())

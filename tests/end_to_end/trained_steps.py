"""Checkpoints of which a step of a trainer has changed little. Used by the tests of deltas."""

import random
import shutil

from safetensors import safe_open

CHANGED = 0.01


def after_a_step(checkpoint, folder, seed):
    """The bf16 checkpoint after a step: in one of a hundred elements the lowest bit is another."""
    shutil.copytree(checkpoint, folder)
    elements = random.Random(seed)
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as tensors:
            assert {str(tensors.get_slice(name).get_dtype()) for name in tensors.keys()} == {"BF16"}
        data = bytearray(path.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        for at in range(begin, len(data), 2):
            if elements.random() < CHANGED:
                data[at] ^= 1
        path.write_bytes(data)
    return folder

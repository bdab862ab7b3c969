"""What an engine must serve, computed from a checkpoint's files by torch and safetensors alone.

A second, independent and obvious implementation: it imports nothing of Layercast's and shares no code with it. Tests
compare the bytes that `layercast export` reads back with served_tensors() of the same files.
"""

import json
import pathlib

import safetensors
import torch

import disk_names
from served_model import ServedModel



# Files.


def read_config(folder):
    return json.loads((pathlib.Path(folder) / "config.json").read_text())


def read_tensors(folder):
    """name -> tensor of a checkpoint folder, through its index where it has one."""
    folder = pathlib.Path(folder)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        files = ["model.safetensors"]
    return _read_files(folder / file for file in files)


def read_export(folder, rank):
    """name -> tensor of one rank, as `layercast export` wrote it."""
    parts = sorted(pathlib.Path(folder).glob(f"model-rank-{rank}-part-*.safetensors"))
    if not parts:
        raise FileNotFoundError(f"no model-rank-{rank}-part-*.safetensors in {folder}")
    return _read_files(parts)


def _read_files(paths):
    tensors = {}
    for path in paths:
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():
                if name in tensors:
                    raise ValueError(f"{path}: {name} is there twice")
                tensors[name] = file.get_tensor(name)
    return tensors


# The model.


def stage_sizes(layers, stages):
    """How many layers each stage of a pipeline has: the ones before the last take what remains, from the back on."""
    sizes = [layers // stages] * stages
    for back in range(layers % stages):
        sizes[-2 - back] += 1
    return sizes


def of_stage(served, config, sizes, stage):
    """What one stage serves of what a rank without stages does."""
    begin, last = sum(sizes[:stage]), stage == len(sizes) - 1
    layers = range(begin, begin + sizes[stage])

    def is_here(name):
        if name.startswith("model.layers."):
            return int(name.split(".")[2]) in layers
        if name.startswith("model.embed_tokens."):
            return stage == 0 or (last and config.get("tie_word_embeddings", False))
        return last

    return {name: tensor for name, tensor in served.items() if is_here(name)}


def served_tensors(folder, tp_size, rank, recipe="none", power_of_two_scales=False, sizes=None, stage=0, holds=()):
    """name -> tensor: every kernel tensor that rank `rank` of `tp_size` serves after loading the checkpoint. `sizes`: of
    a pipeline, the layers of each stage. `holds`: as ServedModel says."""
    config, tensors = disk_names.text_part(read_config(folder), read_tensors(folder))
    dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
    tensors = disk_names.cache_scale_names(disk_names.decoder_names(config, tensors))
    checkpoint = disk_names.in_served_dtypes(config, disk_names.unfused(config, tensors), dtype)
    served = ServedModel(checkpoint, config, tp_size, rank, recipe, power_of_two_scales)
    served.holds = holds
    return of_stage(served.model(), config, sizes or [disk_names.layers_of(config)], stage)


def served_draft(folder, tp_size, rank, recipe="none", eagle=None):
    """name -> tensor: what a rank serves of the draft model beside a target: of the target's checkpoint, or of a folder
    of its own, which no recipe applies to."""
    config, tensors = disk_names.text_part(read_config(folder), read_tensors(folder))
    dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
    if eagle is None:
        tensors = disk_names.draft_names(config, tensors)
    else:
        config, recipe = read_config(eagle), "none"
        tensors = {f"draft.{name}".replace("draft.midlayer.", "draft.layers.0."): tensor
                   for name, tensor in read_tensors(eagle).items()
                   if name.split(".")[0] not in ("embed_tokens", "t2d")}
    checkpoint = disk_names.in_served_dtypes(config, disk_names.unfused(config, tensors), dtype)
    return ServedModel(checkpoint, config, tp_size, rank, recipe, False).draft()


# Comparing.


def raw_bytes(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)


def differences(served, expected):
    """One line for each difference of two dictionaries of tensors: names, dtypes, shapes, the first differing byte."""
    lines = [f"{name}: served, and not expected" for name in sorted(served.keys() - expected.keys())]
    lines += [f"{name}: expected, and not served" for name in sorted(expected.keys() - served.keys())]
    for name in sorted(served.keys() & expected.keys()):
        got, want = served[name], expected[name]
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            lines.append(f"{name}: served {got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}")
            continue
        unequal = (raw_bytes(got) != raw_bytes(want)).nonzero()
        if len(unequal):
            first = unequal[0].item()
            lines.append(f"{name}: {len(unequal)} bytes differ, first at {first}: served {raw_bytes(got)[first]}, "
                         f"expected {raw_bytes(want)[first]}")
    return lines

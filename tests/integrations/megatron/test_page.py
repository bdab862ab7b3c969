"""The block of docs/trainers.md runs as it is printed, on one rank, but for the engine's endpoint."""

import json
import pathlib
import re
import subprocess

import layercast
import torch
import torch.distributed as dist
from layercast.program import program

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "trainers.md"


def test_the_block(folder_of, one_rank, monkeypatch):
    (block,) = re.findall(r"^## Megatron\n\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    folder = folder_of("qwen3")
    monkeypatch.chdir(folder.parent)
    (folder.parent / "policy").symlink_to(folder)
    command = [program(), "serve", "--model", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        try:
            endpoint = json.loads(engine.stdout.readline())["endpoint"]
            space = {"layercast": layercast, "torch": torch, "model": one_rank(folder), "engines": [endpoint]}
            exec(block, space)
            assert layercast.Controller([endpoint]).status()["version"]["step"] == 1
            assert layercast.verify(endpoint, folder)
        finally:
            engine.terminate()
            dist.destroy_process_group()

"""The block of docs/trainers.md runs as it is printed."""

import pathlib
import re

import actors
import layercast
import ray

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "trainers.md"


def test_the_block_of_ray(folder):
    (block,) = re.findall(r"^## Ray\n\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    space = {"layercast": layercast, "ray": ray, "weights": actors.weights(1)}
    exec(block.replace('"policy"', repr(folder)), space)
    assert space["metrics"]["layercast/engines"] == 1
    (answer,) = space["answers"]
    assert answer.spans[0][2].step == 1
    ray.kill(space["engine"])
    ray.kill(space["trainer"])

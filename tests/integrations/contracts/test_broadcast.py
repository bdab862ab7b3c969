"""What the trainers' integrations share, on two ranks; and the lines that docs/trainers.md prints."""

import argparse
import pathlib
import re

import layercast
import layercast.slime
import serving

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "trainers.md"


def test_a_rank_whose_walk_breaks_off_raises_what_it_was_and_the_other_is_told(serve, tmp_path):
    engine, _ = serve()
    first, second = serving.torchrun(HERE / "broadcast_case.py", engine)
    theirs = ["OSError: out of something", "Internal: rank {}: OSError: out of something"]
    assert first["raised"] == [theirs[0], theirs[1].format(1)]
    assert second["raised"] == [theirs[1].format(0), theirs[0]]
    assert first["version"] == second["version"] == 3 and first["held"] == second["held"] == 4
    serving.save_policy(tmp_path / "trained", seed=4)
    assert layercast.verify(engine, tmp_path / "trained").equal


def test_the_block_of_slime(serve, rank, tmp_path):
    (block,) = re.findall(r"^## slime and miles\n\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    engine, space = serve()[0], {}
    exec(block.replace("tcp://127.0.0.1:7800", engine), space)
    space["init"](argparse.Namespace())
    serving.save_policy(tmp_path / "weight_v000001", seed=6)
    space["post_write"](argparse.Namespace(), str(tmp_path / "weight_v000001"), [])
    assert layercast.verify(engine, tmp_path / "weight_v000001").equal

"""What the contract tests share: the toy policy, and engines that serve it in FP8."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared"), str(HERE.parent / "megatron")]
os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[1], *filter(None, [os.environ.get("PYTHONPATH")])])

import pytest  # noqa: E402
import serving  # noqa: E402
from serving import folder, serve  # noqa: E402, F401


@pytest.fixture
def rank(tmp_path):
    """torch.distributed runs, with this process alone."""
    with serving.one_rank(tmp_path):
        yield

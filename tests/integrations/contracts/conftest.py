"""What the contract tests share: the toy policy, and engines that serve it in FP8."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "megatron")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])

import pytest  # noqa: E402
import serving  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    serving.save_policy(tmp_path / "policy")
    return tmp_path / "policy"


@pytest.fixture
def serve(folder):
    with serving.serving(folder) as start:
        yield start


@pytest.fixture
def rank(tmp_path):
    """torch.distributed runs, with this process alone."""
    with serving.one_rank(tmp_path):
        yield

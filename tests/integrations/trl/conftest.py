"""What the tests against TRL's wheel share: a toy policy, and engines that serve it in FP8."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import pytest  # noqa: E402
import serving  # noqa: E402
import toy  # noqa: E402
from serving import serve  # noqa: E402, F401


@pytest.fixture
def folder(tmp_path):
    """The toy policy as a trainer and an engine load it."""
    toy.policy().save_pretrained(tmp_path / "policy")
    toy.tokenizer().save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


@pytest.fixture
def torchrun():
    """torchrun(case, arguments...) -> what its two ranks print, by rank."""
    return lambda case, *arguments: serving.torchrun(HERE / case, *arguments)

"""What the tests against SkyRL's wheel share."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], *filter(None, [os.environ.get("PYTHONPATH")])])

import on_a_cpu  # noqa: E402, F401
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

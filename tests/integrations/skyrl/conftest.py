"""What the tests against SkyRL's wheel share."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], *filter(None, [os.environ.get("PYTHONPATH")])])

import on_a_cpu  # noqa: E402, F401
from serving import folder, serve  # noqa: E402, F401

"""What tests of the Python package share."""

import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
_HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE / "trainer"), str(_HERE.parents[1] / "python")]

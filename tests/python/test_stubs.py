"""The types that python/layercast says it has: its stub has the extension's names, and mypy is content."""

import ast
import os
import pathlib
import subprocess
import sys

from layercast import _native
from nanobind.stubgen import StubGen

ROOT = pathlib.Path(__file__).parents[2]
OF_EVERY_OBJECT = {"__repr__", "__str__"}  # typeshed's object has them


def names(source):
    """Of classes, functions, methods and properties, and their parameters' names where they have any."""
    found = set()

    def walk(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef):
                found.add(prefix + node.name)
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and node.name not in OF_EVERY_OBJECT:
                found.add(prefix + node.name)

    walk(ast.parse(source).body, "")
    return found


def test_the_stub_has_the_names_that_the_extension_has():
    generated = StubGen(_native)
    generated.put(_native)
    assert names((ROOT / "python/layercast/_native.pyi").read_text()) == names(generated.get())


def test_the_package_and_the_examples_are_typed():
    environment = {**os.environ, "MYPYPATH": str(ROOT / "python"), "PYTHONPATH": ""}
    cache = os.environ.get("LAYERCAST_TEST_CACHE", os.devnull)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", f"{cache}/mypy", "python/layercast",
               "examples/rl_loop.py", "examples/ray_rl.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

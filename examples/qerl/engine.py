"""The built-in engine that samples the rollouts, in processes of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving(model: str, recipe: str) -> Iterator[str]:
    """Yields its endpoint."""
    command = [sys.executable, "-m", "layercast", "serve", "--model", model, "--quantization", recipe, "--bind",
               "tcp://127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["endpoint"]
    finally:
        process.terminate()
        process.wait()

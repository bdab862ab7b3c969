"""Python programs in processes of their own, for tests of how the package ends, forks and is interrupted. One that hangs
says where all of its threads are."""

import pathlib
import subprocess
import sys

SECONDS = 60
SUPPORT = pathlib.Path(__file__).parent  # where such programs find what is here

_PREAMBLE = f"""
import faulthandler, sys
faulthandler.enable()
faulthandler.dump_traceback_later({SECONDS}, exit=True)
"""


def run(source, *arguments):
    """What the program prints. It must end with status 0, and say nothing on standard error."""
    command = [sys.executable, "-W", "ignore", "-c", _PREAMBLE + source, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 30)
    assert done.returncode == 0 and not done.stderr, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout

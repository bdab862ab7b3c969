"""Python programs in processes of their own, for tests of how the package ends, forks and is interrupted. One that hangs
says where all of its threads are."""

import os
import pathlib
import signal
import subprocess
import sys

SUPPORT = pathlib.Path(__file__).parent  # where such programs find what is here
SECONDS = 60


def run(source, *arguments):
    """What the program prints. It must end with status 0, and say nothing on standard error."""
    command = [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", "import sys\n" + source]
    process = subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)  # of its children too; faulthandler tells where the threads are
        output, errors = process.communicate()
    assert process.returncode == 0 and not errors, f"exit status {process.returncode}\n{output}\n{errors}"
    return output

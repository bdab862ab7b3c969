"""The flip example runs as a reader would run it, in every recipe, and so do the README's commands with its checkpoints."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import program as layercast_program

ROOT = pathlib.Path(__file__).parents[2]
FLIP = ROOT / "examples" / "checkpoint_flip" / "flip.py"
PROGRAM = pathlib.Path(os.environ["LAYERCAST_PROGRAMS"]) / "layercast"


@pytest.mark.parametrize("recipe", ["none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"])
def test_an_engine_multiplies_then_adds_then_multiplies(recipe):
    done = subprocess.run([sys.executable, FLIP, PROGRAM, recipe], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [line.split("(")[0].strip() for line in done.stdout.splitlines() if line.startswith("3 4 = ")]
    assert answers == ["3 4 = 12", "3 4 = 7", "3 4 = 12"]


def test_why_nothing_started_is_said_once():
    done = subprocess.run([sys.executable, FLIP, PROGRAM, "fp7"], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and (done.stdout + done.stderr).count("got 'fp7'") == 1


def test_the_commands_of_the_readme_say_what_it_says_of_them(tmp_path):
    """`12` and a line's end are as many tokens as are asked for: that end is why the answer stops."""
    program = layercast_program.Program(PROGRAM, tmp_path)
    commands = re.findall(r"^layercast (.+?)(?:  +# (.*))?$", (ROOT / "README.md").read_text(), re.MULTILINE)
    (_, *serve), (_, *publish), generate, reload, verify = (
        re.sub(r"tcp://127.0.0.1:(\d+)", rf"ipc://{tmp_path}/\1", command).replace("examples/", f"{ROOT}/examples/").split()
        for command, _ in commands)
    said = {command.split()[0]: comment for command, comment in commands}
    daemons = []
    try:
        daemons += [program.daemon("serve", *serve, confined=True), program.daemon("publish", *publish)]
        first = program.text(*generate)
        assert first.splitlines()[0] == "1,2,12  (stop)" and "1,2,12 (stop)" in said["generate"]
        program.text(*reload)
        assert program.text(*generate).splitlines()[0] == "7,12  (stop)" and "7,12 (stop)" in said["reload"]
        program.text(*verify)
    finally:
        for daemon in daemons:
            daemon.kill()

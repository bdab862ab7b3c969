"""Several nodes: what a run does when one of them is gone."""

import json
import pathlib
import subprocess
import sys

from layercast.program import program

CASE = pathlib.Path(__file__).with_name("nodes_case.py")


def test_an_engine_whose_node_is_killed_comes_back_on_another_one_with_the_newest_version(folder, tmp_path):
    secret = tmp_path / "secret"
    subprocess.run([program(), "keygen", "--secret", secret], check=True, capture_output=True)
    ran = subprocess.run([sys.executable, CASE, folder, secret], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-4000:]
    (line,) = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"moved"')]
    assert line["moved"] and line["endpoint"] and line["registered"]
    assert line["back_with"] == [2] and line["other"] == 1  # it pulled by itself, and nobody else moved
    assert line["reloaded"]["layercast/engines"] == 2 and line["serve"] == [2, 2]

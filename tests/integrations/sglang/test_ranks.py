"""Two ranks in processes of their own: all commit, or none, and whoever asks rank 0 hears of rank 1."""

import json
import pathlib
import subprocess
import sys

import pytest
import scenes

CASE = pathlib.Path(__file__).resolve().parent / "rank_case.py"


@pytest.fixture
def ranks(publisher, tmp_path):
    """ranks(case) -> what each rank said."""
    publisher.publish(scenes.checkpoint(1), step=1)

    def run(case):
        command = [sys.executable, CASE]
        processes = [
            subprocess.Popen([*command, str(rank), tmp_path / "store", publisher.endpoint, case],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        said = [process.communicate(timeout=300) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], said
        return [json.loads(out.splitlines()[-1]) for out, _ in said]

    return run


def test_each_rank_gets_its_part(ranks):
    for said in ranks("all is well"):
        assert said["answers"] == [[True, ""]] * 3
        assert said["new"] and said["heads"] == [64, scenes.HIDDEN]


def test_each_rank_gets_what_sglangs_code_makes_of_its_part(ranks):
    for said in ranks("fp8"):
        assert said["answers"] == [[True, ""]] * 3
        assert said["new"] and said["heads"] == [scenes.HIDDEN, 64]


def test_one_rank_whose_own_code_raises_keeps_all_from_committing(ranks):
    for said in ranks("fp8, but rank 1 raises"):
        assert [success for success, _ in said["answers"]] == [True, False, False]
        assert all("rank 1: MemoryError('no room')" in message for _, message in said["answers"][1:])
        assert said["old"]


def test_one_rank_that_refuses_keeps_all_from_committing(ranks):
    for said in ranks("moved"):
        success, message = said["answers"][-1]
        assert not success and message.startswith("rank 1: SGLang has moved 'model.norm.weight'")
        assert said["old"]

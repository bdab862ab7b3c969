"""The commands of docs/adapters.md run as they are printed, and `scripts/check_peft` says what it promises. Only the ports
are others, so that tests may run at the same time."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

import adapters

ROOT = pathlib.Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "adapters.md").read_text()


@pytest.fixture
def folders(checkpoint, checkpoint_cache, tmp_path, monkeypatch):
    """The page's `base` and `policy-lora`, in the current folder."""
    kept = adapters.Kept(checkpoint_cache)
    (tmp_path / "base").symlink_to(checkpoint("llama", "a"))
    shutil.copytree(kept.adapter(checkpoint("llama", "a"), "all-linear"), tmp_path / "policy-lora")
    monkeypatch.chdir(tmp_path)
    return kept


def run(command, program):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, "LAYERCAST_PROGRAM": str(program.path)})


def test_the_commands_of_the_page_run(folders, program, start):
    commands = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 9
    endpoints, said = {}, []
    for line in commands:
        words = shlex.split(line)
        if words[1] in ("serve", "publish"):
            at = words.index("--bind") + 1
            daemon = start(words[1], *words[2 : at - 1], "--bind", "tcp://127.0.0.1:0", confined=True)
            endpoints[words[at]] = daemon.endpoint
            continue
        words = [endpoints.get(word, word) for word in words]
        words[0] = str(ROOT / words[0] if words[0].startswith("scripts/") else program.path)
        done = run(words, program)
        assert done.returncode == 0, (line, done)
        said.append(done.stdout)
    assert "run-17@42" in said[3] and "'policy'" in said[3]  # what `list` shows after the second load
    assert "adapter policy-lora@0" in said[1]  # what `generate` says of its tokens


@pytest.mark.parametrize("words, status, said", [((), 0, "within 1.0e-05"), (("--tp", "2", "--limit", "1e-12"), 1, "ABOVE 1.0e-12"),
                                                 (("--model", "nowhere"), 2, "--model")])
def test_check_peft_says_whether_it_is_close(words, status, said, folders, program, checkpoint):
    base = folders.base(checkpoint("llama", "a"))
    model = () if "--model" in words else ("--model", base)
    done = run([ROOT / "scripts" / "check_peft", "policy-lora", *model, *words], program)
    assert done.returncode == status and said in done.stdout + done.stderr, done

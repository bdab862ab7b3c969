"""The blocks of Python in docs/python.md and README.md run as they are printed, in their order, beside the engine that the
page says. Only the ports are others, so that tests may run at the same time."""

import os
import pathlib
import re
import socket

import program as layercast_program
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.mark.parametrize("page, at_least", [("docs/python.md", 9), ("README.md", 1)])
def test_the_blocks_of_a_page_run(page, at_least, folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "policy").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    program = layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path)
    engine = program.daemon("serve", "--model", "policy", "--quantization", "fp8_per_channel", "--adapter-slots", 2,
                            "--allow-path", "policy", "--bind", "tcp://127.0.0.1:0", confined=True)
    try:
        found = blocks(page)
        assert len(found) >= at_least
        space = {"__name__": page}
        publisher = f"tcp://127.0.0.1:{free_port()}"
        for block in found:
            text = block.replace("tcp://127.0.0.1:7800", engine.endpoint).replace("tcp://127.0.0.1:7700", publisher)
            exec(compile(text, page, "exec"), space)
        assert capsys.readouterr().out
    finally:
        engine.kill()

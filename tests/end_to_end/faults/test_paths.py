"""Which paths of an engine's host those may name who call it."""

import shutil

import pytest


@pytest.fixture
def folders(checkpoint, tmp_path):
    """`allowed`, which has b and a link to it, and an a beside it that is not to be read."""
    shutil.copytree(checkpoint("qwen3", "b"), tmp_path / "allowed" / "b")
    shutil.copytree(checkpoint("qwen3", "a"), tmp_path / "a")
    (tmp_path / "allowed" / "latest").symlink_to("b")
    return tmp_path


def refusals(program, engine, path):
    at = ("--engine", engine.endpoint)
    for command in (("reload", *at, "--model", path), ("verify", *at, "--model", path), ("export", *at, "--out", path)):
        outcome = program.run(*command, status=1)
        error = outcome.json.get("error") or outcome.json["engines"][0]["error"]
        assert error["code"] == "permission_denied" and str(path) in error["message"], error
        yield error["message"]


def test_over_tcp_an_engine_takes_no_path_until_it_is_told_which(program, start, folders):
    engine = start("serve", "--model", folders / "a", confined=True)
    served = program.status(engine)["version"]
    for message in refusals(program, engine, folders / "allowed" / "b"):
        assert "layercast serve --allow-path DIR" in message
    assert program.status(engine)["version"] == served and not (folders / "out").exists()
    assert program.reload(engine)["ok"]  # what it was started from


def test_over_a_socket_of_its_own_it_takes_any(program, start, folders):
    engine = start("serve", "--model", folders / "a", "--bind", f"ipc://{folders}/engine", confined=True)
    assert program.reload(engine, "--model", folders / "allowed" / "b")["ok"]
    program.export(engine, folders / "out")


def test_what_leads_out_of_the_allowed_folders_is_refused(program, start, folders):
    engine = start("serve", "--model", folders / "a", "--allow-path", folders / "allowed", confined=True)
    assert program.reload(engine, "--model", folders / "allowed" / "latest")["ok"]
    served = program.status(engine)["version"]
    program.export(engine, folders / "allowed" / "exports" / "first")
    allowed = folders / "allowed"
    (allowed / "way-out").symlink_to(folders / "a")
    for path in (folders / "a", allowed / "way-out"):
        for message in refusals(program, engine, path):
            assert f"something that is in '{allowed}'" in message
    link = min((allowed / "b").glob("*.safetensors"))
    link.unlink()
    link.symlink_to(folders / "a" / link.name)
    refused = program.run("reload", "--engine", engine.endpoint, "--model", allowed / "b", status=1).json["engines"][0]["error"]
    assert refused["code"] == "permission_denied" and str(link) in refused["message"]
    assert program.status(engine)["version"] == served

"""The wheel and the source distribution that scripts/wheels makes, once, and an empty environment with that wheel alone."""

import os
import pathlib
import sys
import time
import zipfile

import pytest
from commands import ROOT, run

@pytest.fixture(scope="session")
def say(pytestconfig):
    """Prints past pytest's capture: figures that a log should have, and no test may depend on."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def print_it(text):
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", flush=True)

    return print_it


@pytest.fixture(scope="session")
def dist(say):
    """The folder with one wheel, for this Python, and the source distribution."""
    folder = pathlib.Path(os.environ["LAYERCAST_WHEELS"])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    began = time.monotonic()
    run(ROOT / "scripts/wheels", "--out", folder, sys.executable)
    say(f"scripts/wheels took {time.monotonic() - began:.0f} s")
    return folder


@pytest.fixture(scope="session")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def environment(wheel, tmp_path_factory):
    """A Python that has Layercast, and not even pip."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-index", wheel)
    return folder


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory):
    """The wheel's files."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def python(environment, tmp_path):
    """python("-c", "...") -> what it prints, run with no variable of ours and no folder of ours."""

    def call(*arguments):
        return run(environment / "bin/python", *arguments, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})

    return call

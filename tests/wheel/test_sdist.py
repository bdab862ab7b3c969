"""The source distribution holds all that a build reads (`scripts/nightly sdist` builds it), and pip installs a clone."""

import os
import sys
import tarfile

import pytest
from commands import ROOT, run

# What CMake reads for a wheel, and the backend.
BUILT = ("cli", "cmake", "engine_side", "include", "python", "src", "trainer_side")
SUFFIXES = {".cc", ".h", ".cu", ".cmake", ".map", ".txt", ".py", ".pyi", ".typed"}
FILES = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"}


@pytest.fixture(scope="module")
def members(dist):
    """The files' paths, below the distribution's folder."""
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def test_it_holds_all_that_a_build_reads(members):
    sources = {
        str(path.relative_to(ROOT))
        for folder in BUILT
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and path.is_file()
    }
    assert len(sources) > 500
    assert not (sources | FILES) - members


def test_it_holds_nothing_that_was_built(members):
    assert not {name for name in members if name.startswith(("build/", ".venv", "dist/", ".git/")) or "__pycache__" in name}


def test_pip_installs_a_clone(dist, tmp_path):
    # scripts/wheels has built in this tree: there is nothing left to compile.
    environment = {**os.environ, "CXX": os.environ.get("CXX", "c++")}
    pip = (sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-index", "--no-deps")
    run(*pip, "--target", tmp_path / "site", ROOT, env=environment)
    version = run(sys.executable, "-m", "layercast", "--version", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "site")})
    assert "layercast" in version

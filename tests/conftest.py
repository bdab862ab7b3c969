"""What every Python test shares: import paths, and a folder of checkpoints that is made once and kept between runs."""

import ctypes
import os
import pathlib
import sys

import pytest

_HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE / folder) for folder in ("support/python", "oracle/reference")]


def _keep_freed_memory():
    """Torch's temporaries come from memory that is there already: a third of an oracle's time went into faulting it in."""
    m_trim_threshold, m_mmap_threshold = -1, -3  # glibc's <malloc.h>
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(m_mmap_threshold, 32 << 20)  # as high as it may be
        libc.mallopt(m_trim_threshold, 1 << 30)


_keep_freed_memory()


@pytest.fixture(scope="session")
def checkpoint_cache(tmp_path_factory):
    """LAYERCAST_TEST_CACHE (CMake sets it to a folder of the build), or a temporary folder."""
    kept = os.environ.get("LAYERCAST_TEST_CACHE")
    return pathlib.Path(kept) if kept else tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="session")
def checkpoint(checkpoint_cache):
    """checkpoint("llama", "a") -> the folder of that small random checkpoint."""
    import checkpoints

    return lambda spec, version: checkpoints.make(spec, checkpoint_cache, version)

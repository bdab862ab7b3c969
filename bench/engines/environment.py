"""The environment in which a vLLM's processes find Layercast, the CPU operations and the bench's plug-ins."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
CPU_OPERATIONS = HERE.parents[1] / "tests" / "integrations" / "vllm"


def of_vllm(folder: Path, threads: int, plugins: dict[str, str], **more: str) -> dict[str, str]:
    """``plugins``: general plug-ins of the bench, by name ``module:function``. ``folder``: for their entry points."""
    _entry_points(folder, "layercast-bench", plugins)
    if not _has_entry_point():
        _entry_points(folder, "layercast", {"layercast": "layercast.vllm:register"})
    paths = [HERE, CPU_OPERATIONS, CPU_OPERATIONS / "plugin", folder, _of_layercast()]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "OMP_NUM_THREADS": str(threads),
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "TQDM_DISABLE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        **more,
    }


def _of_layercast() -> Path:
    spec = importlib.util.find_spec("layercast")
    if spec is None or spec.origin is None:
        raise SystemExit("expected layercast on PYTHONPATH, for instance PYTHONPATH=build/release/python")
    return Path(spec.origin).absolute().parents[1]  # a build has links to the sources


def _has_entry_point() -> bool:
    return any(found.name == "layercast" for found in importlib.metadata.entry_points(group="vllm.general_plugins"))


def _entry_points(folder: Path, name: str, plugins: dict[str, str]) -> None:
    """Makes a folder look as if a package with these entry points were installed in it."""
    lines = [f"{plugin} = {function}" for plugin, function in plugins.items()]
    information = folder / f"{name.replace('-', '_')}-0.0.1.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")
    (information / "entry_points.txt").write_text("\n".join(["[vllm.general_plugins]", *lines, ""]))

"""What docs/trainers.md says of verl's configuration is what the tests run with."""

import importlib
import pathlib
import re

import cluster

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "trainers.md"


def test_the_blocks_of_verl():
    section = re.search(r"^## verl\n(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    overrides, environment = (block.splitlines() for block in re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
    composed = cluster.composed([line for line in overrides if not line.startswith("#")]).rollout.checkpoint_engine
    ours = cluster.config("policy").rollout.checkpoint_engine
    assert (composed.backend, composed.custom_backend_module) == (ours.backend, ours.custom_backend_module)
    importlib.import_module(composed.custom_backend_module)
    engines = cluster.CheckpointEngineRegistry.get(composed.backend)(bucket_size=1, **composed.engine_kwargs.layercast)._engines
    assert engines == ["tcp://127.0.0.1:7800", "tcp://127.0.0.1:7801"]
    said = dict(line.split("=") for line in environment)
    assert {**said, "VERL_USE_EXTERNAL_MODULES": f"cpu_platform,{said['VERL_USE_EXTERNAL_MODULES']}"} == cluster.SHARDS

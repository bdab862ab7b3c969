"""What trainers that cannot be installed here ask of an integration: names and signatures, as their repositories have them.

slime     github.com/THUDM/slime, 624b824a898ab0ec1fcb4d373004c7f3852bf515
miles     github.com/radixark/miles, 31f1ca961a94cb860cec3b2dea34ec332bfa8f76
NeMo-RL   github.com/NVIDIA-NeMo/RL, 7ea279abfbeb698b092856d0dab61e7cf39bc909
prime-rl  github.com/PrimeIntellect-ai/prime-rl, 559b44772e471d1538537b8805cc77f3824a5e64
"""

import importlib
import logging
import sys
import types

#: slime/backends/megatron_utils/actor.py and update_weight/update_weight_from_distributed.py: how the actor makes its updater,
#: and which methods it calls. miles' also asks whether engines are fresh.
UPDATER_KEYWORDS = {"slime": ("weights_getter", "model_name", "quantization_config"),
                    "miles": ("weights_getter", "model_name", "quantization_config", "is_lora")}
CONNECT_KEYWORDS = {"slime": ("engine_gpu_counts", "engine_gpu_offsets", "engine_parallel_configs"),
                    "miles": ("engine_gpu_counts", "engine_gpu_offsets")}
UPDATER_METHODS = {"slime": ("connect_rollout_engines", "disconnect_rollout_engines", "update_weights", "pop_metrics"),
                   "miles": ("connect_rollout_engines", "update_weights", "pop_metrics", "is_rollout_engines_fresh",
                             "mark_engine_connection_stale")}

#: nemo_rl/utils/checkpoint_engines/base.py: the parameters of CheckpointEngine's methods, by name.
CHECKPOINT_ENGINE = {
    "get_target_weight_layout": (), "prepare": (), "finalize": (), "receive_weight_batches": (), "send_weights": ("weights",),
    "init_policy_process_group": ("worker_rank", "train_world_size", "rollout_world_size", "metadata"),
    "init_rollout_process_group": ("rollout_rank", "train_world_size", "rollout_world_size", "metadata"),
}


def create_checkpoint_engine(backend, *, bucket_size_bytes, engine_kwargs):
    """As nemo_rl.utils.checkpoint_engines.base has a class path."""
    module, name = backend.split(":")
    return getattr(importlib.import_module(module), name)(bucket_size=bucket_size_bytes, **engine_kwargs)


def modules(monkeypatch, *names):
    """Empty modules under these names, and their parents, for as long as the test."""
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
            if depth > 1:
                setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], sys.modules[path])
    return [sys.modules[name] for name in names]


def prime_rl(monkeypatch):
    """Of prime_rl: transports/weights (the factory, and a writer as FileSystemWeightBroadcast), utils/utils (where a step lies)."""
    weights, places = modules(monkeypatch, "prime_rl.transports.weights", "prime_rl.utils.utils")
    places.get_broadcast_dir = lambda output_dir: output_dir / "broadcasts"
    places.get_step_path = lambda path, step: path / f"step_{step}"

    class FileSystemWeightBroadcast:
        def __init__(self, output_dir, config, lora_config=None):
            self.logger, self.output_dir, self.lora_config = logging.getLogger("prime_rl"), output_dir, lora_config

        def broadcast_weights(self, model, step):
            """Shards of safetensors with their index, and then STABLE."""
            folder = places.get_step_path(places.get_broadcast_dir(self.output_dir), step)
            model.save_pretrained(folder, max_shard_size="50KB")
            (folder / "STABLE").touch()

    def setup_weight_broadcast(output_dir, config, parallel_dims, lora_config=None):
        return FileSystemWeightBroadcast(output_dir, config, lora_config)

    weights.setup_weight_broadcast = setup_weight_broadcast
    return weights

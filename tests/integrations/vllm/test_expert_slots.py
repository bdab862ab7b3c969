"""Slots of experts, and of a pipeline's stages: vLLM's own layers and managers, of which a CPU lacks the experts' kernels and
processes the other stages alone. Each byte is what vLLM's own load of the same adapter leaves."""

import contextlib
import json

import layercast
import models
import pytest
import torch
from layercast.vllm.lora_adapters import LoraAdapters
from safetensors.torch import save_file
from test_slots import SIZES, Worker, load, request, same, worker_of

RANK, EXPERTS, HIDDEN = 3, 4, 64
CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": 5, "peft_version": "0.19.1"}
ROOT = "base_model.model.model.layers"


@pytest.fixture
def experts_without_kernels(monkeypatch):
    """vLLM's layers of experts with adapters take a kernel that only GPUs have. They are made here without one."""
    from vllm.lora.layers import fused_moe
    from vllm.model_executor.layers.fused_moe.experts.lora_experts_mixin import LoRAExpertsMixin
    from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernelModularImpl

    class Kernel:
        impl = object.__new__(FusedMoEKernelModularImpl)
        fused_experts = object.__new__(type("Experts", (LoRAExpertsMixin,), {}))
        prepare_finalize = None

        def supports_lora(self):
            return True

    made = fused_moe.FusedMoEWithLoRA.__init__

    def without_kernel(layer, base):
        method = base.routed_experts.quant_method
        method.__class__ = type("WithoutKernel", (type(method),), {"supports_internal_mk": True, "is_monolithic": False})
        method.__dict__["moe_kernel"] = Kernel()
        made(layer, base)

    monkeypatch.setattr(fused_moe, "FusedMoEModularMethod", lambda method, kernel: method)
    monkeypatch.setattr(fused_moe.FusedMoEWithLoRA, "__init__", without_kernel)


def expert_by_expert(random):
    tensors, inner = {}, 32
    for layer in range(2):
        for expert in range(EXPERTS):
            for name, rows, columns in (("gate", inner, HIDDEN), ("up", inner, HIDDEN), ("down", HIDDEN, inner)):
                path = f"{ROOT}.{layer}.mlp.experts.{expert}.{name}_proj"
                tensors |= {f"{path}.lora_A.weight": random(RANK, columns), f"{path}.lora_B.weight": random(rows, RANK)}
    return tensors


def stacked(random):
    tensors, inner = {}, 128
    for layer in range(2):
        for wrapper, rows, columns in ((".base_layer", 2 * inner, HIDDEN), ("", HIDDEN, inner)):
            path = f"{ROOT}.{layer}.mlp.experts{wrapper}"
            tensors[f"{path}.lora_A.weight"] = random(EXPERTS * RANK, columns)
            tensors[f"{path}.lora_B.weight"] = random(rows, EXPERTS * RANK)
    return tensors


def attention(random, layers=range(2)):
    tensors = {}
    for layer in layers:
        path = f"{ROOT}.{layer}.self_attn.q_proj"
        tensors |= {f"{path}.lora_A.weight": random(RANK, HIDDEN), f"{path}.lora_B.weight": random(64, RANK)}
    return tensors


def written(folder, tensors, **config):
    config = {**CONFIG, "target_modules": sorted({name.split(".")[-3] for name in tensors}), **config}
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return config, tensors


@pytest.fixture
def random():
    made = torch.Generator().manual_seed(1)
    return lambda *shape: torch.randn(shape, generator=made)


STACKED = {"target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
FORMS = {"qwen3_moe": (expert_by_expert, {}), "gpt_oss": (stacked, STACKED)}


@pytest.mark.parametrize(("tp_rank", "tp_size"), [(0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("parallel", [{}, {"enable_expert_parallel": True}], ids=["", "experts"])
@pytest.mark.parametrize("name", FORMS)
def test_slots_of_experts_hold_what_vllm_loads(
    experts_without_kernels, tmp_path, random, name, parallel, tp_rank, tp_size
):
    (tmp_path / "model").mkdir()
    models.saved(name, tmp_path / "model")
    form, config = FORMS[name]
    adapter = written(tmp_path, form(random) | attention(random), **config)
    with worker_of(tmp_path / "model", tp_rank, tp_size, **parallel) as worker, layercast.Publisher() as publisher:
        worker.use(request("file", 10, tmp_path))
        theirs = worker.slot(10)
        worker.manager.remove_adapter(10)
        for layer in worker.registry.modules.values():
            layer.reset_lora(0)
        worker.others = tp_size > 1 and parallel != {}  # which have the other experts
        load(worker, publisher, adapter, 0, number=20)
        assert same(worker.slot(20), theirs)
        assert any(tensor.any() for path, tensor in theirs.items() if ".experts.w" in path)
        assert all(tensor == 1 for path, tensor in theirs.items() if "adapter_enabled" in path)
        assert LoraAdapters.of(worker)._names["mine"].newest.images is not None  # by copies, and not left to vLLM


@contextlib.contextmanager
def stage_of_two(stage):
    """Within this, models are built as one stage of a pipeline has them."""
    import vllm.distributed.parallel_state as parallel

    group = parallel._PP
    kept = group.world_size, group.rank_in_group, group.ranks
    group.world_size, group.rank_in_group, group.ranks = 2, stage, [0, 1] if stage == 0 else [1, 0]
    try:
        yield
    finally:
        group.world_size, group.rank_in_group, group.ranks = kept


@pytest.mark.parametrize("stage", [0, 1])
def test_a_stage_of_a_pipeline_takes_its_layers_alone(tmp_path, random, stage):
    (tmp_path / "model").mkdir()
    models.saved("llama", tmp_path / "model")
    adapter = written(tmp_path, attention(random))
    with (
        models.rank_of(tmp_path / "model", **SIZES) as config,
        stage_of_two(stage),
        layercast.Publisher() as publisher,
    ):
        worker = Worker(config)
        assert {path.split(".")[2] for path in worker.registry.modules if "layers" in path} == {str(stage)}
        with pytest.raises(layercast.InvalidArgument, match=f"layers.{1 - stage}.self_attn.q_proj"):
            load(worker, publisher, adapter, 0, number=20)
        worker.others = True  # the other stage
        load(worker, publisher, adapter, 1, number=20)
        worker.use(request("file", 10, tmp_path))
        assert same(worker.slot(20), worker.slot(10))
        _, images = LoraAdapters.of(worker)._names["mine"].newest.images
        assert {name.split(".")[2] for name in images} == {str(stage)}

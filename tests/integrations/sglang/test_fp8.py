"""FP8 layers of SGLang's own methods: what is adopted, where it lies, and what is refused by name.

W8A8Fp8LinearMethod runs on a CPU as it is. Its per-channel kernel does not: a stand-in takes its place, in torch.
"""

import pytest
import scenes
import torch
from sglang.srt.layers.quantization import w8a8_fp8
from sglang.srt.layers.quantization.w8a8_fp8 import W8A8Fp8Config


def update(scheduler, publisher):
    steps = (("stage", {"endpoint": publisher.endpoint}), ("prepare", {"wait": 60.0}), ("commit", {}))
    for method, parameters in steps:
        answer = scenes.rpc(scheduler, f"layercast_{method}", **parameters)
        if not answer.success:
            return answer.message
    return ""


def served_after_an_update(config, publisher, form):
    """A model after version 1 over version 0, one after a cold load of version 1, and where all was before."""
    model = scenes.loaded(scenes.qwen2(config), form(scenes.checkpoint(0)))
    before, scheduler = scenes.addresses(model), scenes.scheduler_of(model)
    publisher.publish(form(scenes.checkpoint(1)), step=1)
    assert update(scheduler, publisher) == ""
    cold = scenes.loaded(scenes.qwen2(config), form(scenes.checkpoint(1)))
    return model, cold, before, scheduler


def test_a_checkpoint_in_fp8_goes_into_the_transposed_memory(publisher):
    config = W8A8Fp8Config(is_checkpoint_fp8_serialized=True)
    model, cold, before, _ = served_after_an_update(config, publisher, scenes.in_fp8)
    weight = model.model.layers[0].mlp.down_proj.weight
    assert weight.dtype == torch.float8_e4m3fn and weight.stride() == (1, scenes.INNER)
    assert scenes.contents(model) == scenes.contents(cold)
    assert scenes.addresses(model) == before


@pytest.fixture
def dividing_kernel(monkeypatch):
    monkeypatch.setattr(w8a8_fp8, "per_token_group_quant_fp8", _dividing)
    monkeypatch.setattr(w8a8_fp8, "cutlass_fp8_supported", lambda: True)


def _dividing(x, group_size):
    """A kernel with the arithmetic of Layercast's fp8_per_channel."""
    scale = (x.float().abs().amax(dim=1, keepdim=True) / 448).clamp(min=1 / (448 * 512))
    return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def test_scales_of_one_row_are_filled_where_they_lie(publisher, dividing_kernel):
    model, cold, before, scheduler = served_after_an_update(W8A8Fp8Config(), publisher, dict)
    layer = model.model.layers[0].self_attn.qkv_proj
    assert layer.weight_scale.shape == (1, 128) and layer.weight.stride() == (1, scenes.HIDDEN)
    assert scheduler.layercast_state()["recipe"] == "fp8_per_channel"
    assert scenes.contents(model) == scenes.contents(cold)
    assert scenes.addresses(model) == before


def test_sglangs_end_of_an_update_would_have_moved_them(publisher, dividing_kernel):
    """Why a commit is no session: SGLang's end quantizes e4m3 again, into new memory."""
    model = scenes.loaded(scenes.qwen2(W8A8Fp8Config()), scenes.checkpoint(0))
    before = scenes.addresses(model)
    scenes.updater_of(model).end_weight_update(run_post_load=False)
    assert scenes.addresses(model) != before


def test_the_door_spares_kernel_bytes_from_the_end(publisher, dividing_kernel):
    from layercast import sglang as plugin
    from sglang.srt.managers import io_struct

    model = scenes.loaded(scenes.qwen2(W8A8Fp8Config()), scenes.checkpoint(0))
    before, manager = scenes.addresses(model), scenes.scheduler_of(model).weight_updater
    publisher.publish(scenes.checkpoint(1), step=1)
    assert manager.begin_weight_update(io_struct.BeginWeightUpdateReqInput()).success
    answer = manager.update_weights_from_tensor(
        io_struct.UpdateWeightsFromTensorReqInput(serialized_named_tensors=plugin.request(publisher.endpoint),
                                                  load_format=plugin.CUSTOM_LOADER, flush_cache=True)
    )
    assert answer.success, answer.message
    assert manager.end_weight_update(io_struct.EndWeightUpdateReqInput()).success
    cold = scenes.loaded(scenes.qwen2(W8A8Fp8Config()), scenes.checkpoint(1))
    assert scenes.contents(model) == scenes.contents(cold)
    assert scenes.addresses(model) == before


@pytest.fixture(params=[True, False], ids=["per_channel", "per_tensor"])
def sglangs_arithmetic(monkeypatch, request):
    monkeypatch.setattr(w8a8_fp8, "per_token_group_quant_fp8", scenes.multiplying_kernel)
    monkeypatch.setattr(w8a8_fp8, "cutlass_fp8_supported", lambda: request.param)


def test_arithmetic_that_no_recipe_has_is_left_to_sglang_by_name(publisher, sglangs_arithmetic):
    model, cold, before, scheduler = served_after_an_update(W8A8Fp8Config(), publisher, dict)
    assert model.model.layers[0].mlp.down_proj.weight.dtype == torch.float8_e4m3fn
    reloaded = scheduler.layercast_state()["reloaded"]
    assert {path.rpartition(".")[2] for path in reloaded} == {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}
    assert all("bytes of known weights differ" in why for why in reloaded.values())
    assert scenes.contents(model) == scenes.contents(cold)
    assert scenes.addresses(model) == before


def test_processing_that_raises_leaves_the_old_version(publisher, sglangs_arithmetic, monkeypatch):
    model = scenes.loaded(scenes.qwen2(W8A8Fp8Config()), scenes.checkpoint(0))
    before, scheduler = scenes.served(model), scenes.scheduler_of(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    assert scenes.rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint).success
    monkeypatch.setattr(w8a8_fp8.W8A8Fp8LinearMethod, "process_weights_after_loading", lambda *_: 1 // 0)
    answer = scenes.rpc(scheduler, "layercast_prepare", wait=60.0)
    assert not answer.success and "ZeroDivisionError" in answer.message
    assert scenes.served(model) == before and not scheduler.layercast_state()["torn"]


def test_processing_that_leaves_a_number_is_refused_by_name(publisher, sglangs_arithmetic, monkeypatch):
    through = w8a8_fp8.W8A8Fp8LinearMethod.process_weights_after_loading

    def process(self, layer):
        layer.largest = layer.weight.float().amax().item()
        through(self, layer)

    monkeypatch.setattr(w8a8_fp8.W8A8Fp8LinearMethod, "process_weights_after_loading", process)
    model = scenes.loaded(scenes.qwen2(W8A8Fp8Config()), scenes.checkpoint(0))
    before = scenes.served(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    message = update(scenes.scheduler_of(model), publisher)
    assert "model.layers.0.self_attn.qkv_proj" in message and "'largest'" in message
    assert scenes.served(model) == before

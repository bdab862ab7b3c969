"""The custom weight loader, through SGLang's own session, WeightUpdater and manager of the scheduler."""

import pytest
import scenes
from layercast import sglang as plugin
from sglang.srt.managers import io_struct


def through_a_session(scheduler, named_tensors):
    manager = scheduler.weight_updater
    assert manager.begin_weight_update(io_struct.BeginWeightUpdateReqInput()).success
    answer = manager.update_weights_from_tensor(
        io_struct.UpdateWeightsFromTensorReqInput(serialized_named_tensors=named_tensors,
                                                  load_format=plugin.CUSTOM_LOADER, flush_cache=True)
    )
    assert manager.end_weight_update(io_struct.EndWeightUpdateReqInput()).success
    return answer


def test_a_request_takes_the_whole_version(model, publisher):
    scheduler, before = scenes.scheduler_of(model), scenes.addresses(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    answer = through_a_session(scheduler, plugin.request(publisher.endpoint, lineage="run", step=1))
    assert answer.success, answer.message
    assert scenes.contents(model) == scenes.contents(scenes.loaded(scenes.qwen2(), scenes.checkpoint(1)))
    assert scenes.addresses(model) == before


def test_both_doors_share_one_receiver(model, publisher):
    scheduler = scenes.scheduler_of(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    assert through_a_session(scheduler, plugin.request(publisher.endpoint)).success
    assert scheduler.layercast_state()["version"]["step"] == 1
    publisher.publish(scenes.checkpoint(2), step=2)
    assert scenes.rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint).success
    assert scenes.rpc(scheduler, "layercast_prepare", wait=60.0).success
    assert scenes.rpc(scheduler, "layercast_commit").success
    assert scheduler.layercast_state()["version"]["step"] == 2


def test_a_refusal_is_an_answer_and_leaves_the_old_bytes(model, publisher):
    scheduler, before = scenes.scheduler_of(model), scenes.served(model)
    missing = scenes.checkpoint(1)
    del missing["model.layers.0.self_attn.o_proj.weight"]
    publisher.publish(missing, step=1)
    answer = through_a_session(scheduler, plugin.request(publisher.endpoint))
    assert not answer.success and "o_proj" in answer.message
    assert scenes.served(model) == before


@pytest.mark.parametrize("name, said", [("weights", "layercast.request"), ("layercast.request", "endpoint")])
def test_what_is_no_request_is_refused(model, name, said):
    (_, tensor), = plugin.request("")
    answer = through_a_session(scenes.scheduler_of(model), [(name, tensor)])
    assert not answer.success and said in answer.message


def test_without_hooks_layers_that_the_end_processes_are_refused(model, monkeypatch):
    import layercast
    from layercast.sglang import door

    monkeypatch.setattr(door, "ends_are_hooked", lambda: False)
    door._refuse_if_processed_again(model)
    model.model.layers[0].mlp.down_proj.quant_method = type("Fp8LinearMethod", (), {})()
    with pytest.raises(layercast.FailedPrecondition, match="layers.0.mlp.down_proj"):
        plugin.custom_loader(model, plugin.request("tcp://127.0.0.1:1"))


def test_the_end_of_a_session_leaves_what_was_written(model, publisher):
    publisher.publish(scenes.checkpoint(1), step=1)
    processed = []
    layer = model.model.layers[0].mlp.down_proj
    through = type(layer.quant_method).process_weights_after_loading

    class Watched(type(layer.quant_method)):
        def process_weights_after_loading(self, at):
            if not next(at.parameters()).is_meta and at is layer:
                processed.append(at)
            through(self, at)

    layer.quant_method.__class__ = Watched
    assert through_a_session(scenes.scheduler_of(model), plugin.request(publisher.endpoint)).success
    assert processed == []
    scenes.updater_of(model).end_weight_update(run_post_load=True)  # of a session that was not ours
    assert processed == [layer]

"""Updates through the scheduler's methods, of SGLang's own Qwen2, from a real publisher."""

import layercast
import pytest
import scenes
import torch


def rpc(scheduler, method, **parameters):
    answer = scenes.rpc(scheduler, method, **parameters)
    assert answer.success, answer.message


def refused(scheduler, method, **parameters):
    answer = scenes.rpc(scheduler, method, **parameters)
    assert not answer.success
    return answer.message


def update(scheduler, publisher, **options):
    rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint, **options)
    rpc(scheduler, "layercast_prepare", wait=60.0)
    rpc(scheduler, "layercast_commit")


def test_a_commit_writes_the_bytes_that_torch_says(model, publisher):
    scheduler, tensors = scenes.scheduler_of(model), scenes.checkpoint(1)
    publisher.publish(tensors, step=1)
    update(scheduler, publisher)
    oracle, have = scenes.fused_by_torch(tensors), scenes.contents(model)
    assert {name: have[name] for name in oracle} == oracle
    assert scheduler.flushes == 1
    assert scheduler.layercast_state()["version"]["step"] == 1
    rpc(scheduler, "layercast_verify")


def test_a_commit_leaves_a_model_as_a_cold_load_does_and_where_it_was(model, publisher):
    before = scenes.addresses(model)
    scheduler = scenes.scheduler_of(model)
    for step in (1, 2):
        publisher.publish(scenes.checkpoint(step), step=step)
        update(scheduler, publisher)
        cold = scenes.loaded(scenes.qwen2(), scenes.checkpoint(step))
        assert scenes.contents(model) == scenes.contents(cold)
    assert scenes.addresses(model) == before


def test_tied_embeddings_are_one_tensor(publisher):
    def tied(step):
        tensors = scenes.checkpoint(step)
        del tensors["lm_head.weight"]
        return tensors

    model = scenes.loaded(scenes.qwen2(tie_word_embeddings=True), tied(0))
    scheduler = scenes.scheduler_of(model)
    publisher.publish(tied(1), step=1)
    update(scheduler, publisher)
    assert scenes.contents(model) == scenes.contents(
        scenes.loaded(scenes.qwen2(tie_word_embeddings=True), tied(1))
    )


def test_staging_writes_nothing_and_an_older_step_can_be_asked_for(model, publisher):
    scheduler, before = scenes.scheduler_of(model), scenes.served(model)
    for step in (1, 2):
        publisher.publish(scenes.checkpoint(step), step=step)
    rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint, lineage="run", step=1)
    rpc(scheduler, "layercast_prepare", wait=60.0)
    assert scheduler.layercast_state()["state"] == "staged"
    assert scenes.served(model) == before
    rpc(scheduler, "layercast_commit")
    assert scenes.contents(model) == scenes.contents(scenes.loaded(scenes.qwen2(), scenes.checkpoint(1)))


def test_an_aborted_version_is_not_committed(model, publisher):
    scheduler, before = scenes.scheduler_of(model), scenes.served(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint)
    rpc(scheduler, "layercast_abort")
    assert "staged" in refused(scheduler, "layercast_commit")
    assert scenes.served(model) == before
    assert scheduler.flushes == 0
    update(scheduler, publisher)


def test_a_stage_that_fails_leaves_the_old_bytes(model, publisher):
    scheduler, before = scenes.scheduler_of(model), scenes.served(model)
    tensors = scenes.checkpoint(1)
    with publisher.borrowed(tensors, step=1):
        tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")  # behind the publisher's back
        rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint)
        assert "model.layers.1.mlp" in refused(scheduler, "layercast_prepare", wait=60.0)
        assert scheduler.layercast_state()["error"]["code"] == "corrupt"
        assert "model.layers.1.mlp" in refused(scheduler, "layercast_commit")
    assert scenes.served(model) == before
    assert not scheduler.layercast_state()["torn"]
    publisher.publish(scenes.checkpoint(2), step=2)
    update(scheduler, publisher)


def test_a_publisher_that_is_gone_is_an_answer(model):
    with layercast.Publisher() as publisher:
        endpoint = publisher.endpoint
    before = scenes.served(model)
    assert refused(scenes.scheduler_of(model), "layercast_stage", endpoint=endpoint)
    assert scenes.served(model) == before


def test_tensors_that_do_not_fit_are_refused_by_name(model, publisher):
    scheduler, before = scenes.scheduler_of(model), scenes.served(model)
    missing = scenes.checkpoint(1)
    del missing["model.layers.0.self_attn.o_proj.weight"]
    misshapen = scenes.checkpoint(2)
    misshapen["model.norm.weight"] = torch.zeros(scenes.HIDDEN + 1, dtype=torch.bfloat16)
    for step, (tensors, name) in enumerate([(missing, "o_proj"), (misshapen, "load_weights")]):
        publisher.publish(tensors, step=step + 1)
        assert name in refused(scheduler, "layercast_stage", endpoint=publisher.endpoint)
    assert scenes.served(model) == before


def test_a_model_that_does_not_build_on_meta_is_refused_by_name(model, publisher):
    publisher.publish(scenes.checkpoint(1), step=1)
    model.config = None
    assert "Qwen2ForCausalLM" in refused(scenes.scheduler_of(model), "layercast_stage", endpoint=publisher.endpoint)


def test_running_requests_are_refused_unless_their_caches_may_stay(model, publisher):
    scheduler, before = scenes.scheduler_of(model), scenes.served(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint)
    rpc(scheduler, "layercast_prepare", wait=60.0)
    scheduler.busy = True
    assert "pause_generation" in refused(scheduler, "layercast_commit")
    assert scenes.served(model) == before
    rpc(scheduler, "layercast_commit", flush_cache=False)
    assert scheduler.flushes == 0 and scenes.served(model) != before


def test_released_weights_are_refused_by_name(model, publisher):
    scheduler = scenes.scheduler_of(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    scheduler.weight_updater.offload_tags.add("weights")
    assert "resume_memory_occupation" in refused(scheduler, "layercast_stage", endpoint=publisher.endpoint)
    scheduler.weight_updater.offload_tags.clear()
    update(scheduler, publisher)


def test_an_open_session_of_sglang_is_refused(model, publisher):
    from sglang.srt.managers.io_struct import BeginWeightUpdateReqInput

    scheduler = scenes.scheduler_of(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    assert scheduler.weight_updater.begin_weight_update(BeginWeightUpdateReqInput()).success
    assert "end_weight_update" in refused(scheduler, "layercast_stage", endpoint=publisher.endpoint)


def test_sglangs_weight_cache_refuses(model, publisher):
    from sglang.srt.runtime_context import get_model

    publisher.publish(scenes.checkpoint(1), step=1)
    with get_model().override(weight_cache_mode="client"):
        assert "--weight-cache-mode client" in refused(
            scenes.scheduler_of(model), "layercast_stage", endpoint=publisher.endpoint
        )


def test_caches_that_a_model_derives_refuse(model, publisher):
    publisher.publish(scenes.checkpoint(1), step=1)
    scheduler = scenes.scheduler_of(model)
    rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint)
    rpc(scheduler, "layercast_prepare", wait=60.0)
    model.model.norm._derived_weight_cache_error = "a cache of this norm"
    assert "a cache of this norm" in refused(scheduler, "layercast_commit")


@pytest.mark.parametrize("sizes", [{"pp_size": 2}, {"dp_size": 2}])
def test_ranks_that_an_rpc_does_not_reach_are_refused(model, sizes, monkeypatch):
    import types

    from sglang.srt import runtime_context

    parallel = types.SimpleNamespace(**{"pp_size": 1, "dp_size": 1, "tp_size": 1, **sizes})
    monkeypatch.setattr(runtime_context, "get_parallel", lambda: parallel)
    scheduler = scenes.scheduler_of_parts(model)
    with pytest.raises(layercast.Unsupported, match=next(iter(sizes))):
        scheduler.layercast_stage("tcp://127.0.0.1:1")


def test_memory_that_sglang_has_moved_is_not_written(model, publisher):
    scheduler = scenes.scheduler_of(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint)
    rpc(scheduler, "layercast_prepare", wait=60.0)
    layer = model.model.layers[1].mlp.down_proj
    layer.weight.data = layer.weight.data.clone()
    before = scenes.served(model)
    assert "model.layers.1.mlp.down_proj.weight" in refused(scheduler, "layercast_commit")
    assert scenes.served(model) == before
    update(scheduler, publisher)
    assert scenes.contents(model) == scenes.contents(scenes.loaded(scenes.qwen2(), scenes.checkpoint(1)))


def test_derived_tensors_are_computed_again_in_place(model, publisher):
    attention = model.model.layers[0].self_attn

    def post_load_weights():
        attention.w_kc = attention.o_proj.weight.float() * 2

    object.__setattr__(model, "post_load_weights", post_load_weights)
    post_load_weights()
    derived = attention.w_kc
    scheduler = scenes.scheduler_of(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    update(scheduler, publisher)
    assert attention.w_kc is derived
    assert torch.equal(derived, scenes.checkpoint(1)["model.layers.0.self_attn.o_proj.weight"].float() * 2)


def test_the_twin_leaves_no_rotary_tables_behind(model, publisher):
    from sglang.srt.layers.rotary_embedding import factory

    publisher.publish(scenes.checkpoint(1), step=1)
    before = dict(factory._ROPE_DICT)
    update(scenes.scheduler_of(model), publisher)
    assert factory._ROPE_DICT == before


def test_sglangs_event_loop_is_in_inference_mode_and_so_may_an_update_be(model, publisher):
    scheduler = scenes.scheduler_of(model)
    for step in (1, 2):
        publisher.publish(scenes.checkpoint(step), step=step)
        with torch.inference_mode():
            update(scheduler, publisher)
    assert scenes.contents(model) == scenes.contents(scenes.loaded(scenes.qwen2(), scenes.checkpoint(2)))


def test_a_commit_that_fails_is_torn_until_a_version_has_landed_whole(model, publisher):
    scheduler = scenes.scheduler_of(model)
    publisher.publish(scenes.checkpoint(1), step=1)
    rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint)
    rpc(scheduler, "layercast_prepare", wait=60.0)
    object.__setattr__(model, "post_load_weights", lambda: 1 / 0)
    assert "ZeroDivisionError" in refused(scheduler, "layercast_commit")
    assert scheduler.layercast_state()["torn"]
    object.__setattr__(model, "post_load_weights", lambda: None)
    publisher.publish(scenes.checkpoint(2), step=2)
    update(scheduler, publisher)
    assert not scheduler.layercast_state()["torn"]
    assert scenes.contents(model) == scenes.contents(scenes.loaded(scenes.qwen2(), scenes.checkpoint(2)))


def test_experts_that_a_loader_hands_to_a_pool_are_recorded():
    import concurrent.futures

    from layercast.host.recorder import record
    from layercast.sglang.twin import _submitted_work_runs_here
    from layercast.tensor import TensorSpec

    target = torch.empty(2, 3, device="meta")

    def load_weights(weights):
        with concurrent.futures.ThreadPoolExecutor() as executor:
            done = [executor.submit(target[row].copy_, tensor) for row, (_, tensor) in enumerate(weights)]
        for each in concurrent.futures.as_completed(done):
            each.result()

    with _submitted_work_runs_here():
        loaded = record(load_weights, {"w": target}, [TensorSpec("a", "F32", (3,)), TensorSpec("b", "F32", (3,))])
    assert [copy.source for copy in loaded.recording.copies] == ["a", "b"]

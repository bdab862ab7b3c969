"""SGLang finds the plug-in by its entry point, and its registry applies the hooks."""

import scenes
from layercast.sglang import register
from layercast.sglang.hooks import SCHEDULER, UPDATER, ends_are_hooked
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.plugins import GENERAL_PLUGINS_GROUP, load_plugins_by_group
from sglang.srt.plugins.hook_registry import HookRegistry

METHODS = ["stage", "prepare", "commit", "abort", "verify", "state"]


def test_the_entry_point_is_found():
    plugin, distribution = load_plugins_by_group(GENERAL_PLUGINS_GROUP)["layercast"]
    assert plugin is register
    assert distribution in ("layercast", "layercast-under-test")  # the wheel's, or that of a build folder


def test_the_whitelist_can_leave_it_out(monkeypatch):
    monkeypatch.setenv("SGLANG_PLUGINS", "another")
    assert "layercast" not in load_plugins_by_group(GENERAL_PLUGINS_GROUP)


def test_the_scheduler_has_the_methods():
    for method in METHODS:
        assert callable(getattr(Scheduler, f"layercast_{method}"))


def test_registering_again_adds_nothing():
    methods = [f"{UPDATER}.update_weights_from_tensor", f"{UPDATER}.end_weight_update"]
    targets = [f"{SCHEDULER}.get_internal_state", *methods]
    before = {target: len(HookRegistry._hooks[target]) for target in targets}
    assert set(before.values()) == {1}
    register()
    HookRegistry.apply_hooks()
    assert {target: len(HookRegistry._hooks[target]) for target in targets} == before
    assert set(targets) <= HookRegistry._patched and ends_are_hooked()


def test_the_internal_state_says_where_an_update_is(model):
    import types

    from sglang.srt.managers.io_struct import GetInternalStateReqOutput

    scheduler = scenes.scheduler_of(model)
    answers = types.SimpleNamespace(get_internal_state=lambda _: GetInternalStateReqOutput(internal_state={"else": 1}))
    scheduler.internal_state = answers
    answer = scheduler.get_internal_state(None)
    assert answer.internal_state == {"else": 1, "layercast": {"state": "idle", "version": None}}

"""More adapters than slots: those in host copies come back when they are asked for, to the bit what they were, and nobody
is answered by another one or by the base."""

import pytest

import adapters
import program as layercast_program
from adapter_setting import APART, LIMIT, AdapterSetting, only

LONG = 480
NAMES = ("one", "two", "three")


@pytest.fixture
def setting(program, start, checkpoint, checkpoint_cache):
    kept = adapters.Kept(checkpoint_cache)
    return AdapterSetting(program, start, kept, kept.base(checkpoint("llama", "a")))


def serve(setting, *words, slots=1, hosts=2, tp=1, **how):
    return setting.serve("--tp", tp, "--host-adapters", hosts, *words, slots=slots, **how)


def load_all(setting):
    return {name: setting.load(name, version)["version"] for version, name in enumerate(NAMES)}


def alone(setting, name, **how):
    """The answer of an engine that has this adapter alone."""
    engine = setting.start("serve", "--model", setting.base, "--tp", how.pop("tp", 1), "--adapter-slots", 1,
                           "--adapter", f"{name}={setting.folder(NAMES.index(name))}")
    answer = setting.answer(name, engine=engine, **how)
    engine.stop()
    return answer


def plain(answer):
    """Without the version's label, which is the same wherever the folder was loaded."""
    return answer["tokens"], answer["logprobs"], answer["finish"]


def tiers(setting):
    return {entry["name"]: entry["tier"] for entry in setting.list() if entry["state"] == "served"}


@pytest.mark.parametrize("tp", [1, 2])
def test_three_adapters_through_one_slot_answer_as_if_alone(tp, setting):
    """Concurrent requests of all three and of the base, again and again: some 60 adapters leave the slot, and come back."""
    expected = {name: alone(setting, name, tp=tp, repeat=None) for name in NAMES}
    serve(setting, tp=tp)
    versions = load_all(setting)
    assert sorted(tiers(setting).values()) == ["host", "host", "slot"]
    base = setting.answer(None)
    asking = [(name, setting.program.start(*setting.asking(name, repeat=20))) for _ in range(2) for name in (*NAMES, None)]
    for name, started in asking:
        for answer in setting.program.finish(started).json["answers"]:
            if name is None:
                assert answer == base
                continue
            assert plain(answer) == plain(expected[name])
            assert only(span["adapter"] for span in answer["spans"]) == versions[name]
    assert len({tuple(answer["logprobs"]) for answer in (*expected.values(), base)}) == len(NAMES) + 1
    assert sorted(tiers(setting)) == sorted(NAMES) and sorted(tiers(setting).values()) == ["host", "host", "slot"]
    for version, name in enumerate(NAMES):
        assert setting.is_whole(version, name)  # in whichever tier it is


def test_100_promotions_below_a_running_sequence_take_no_memory_and_do_not_stop_it(setting):
    pids = serve(setting, slots=2, tp=2).pids
    load_all(setting)
    expected = {name: setting.answer(name, new=2) for name in NAMES}
    whole = setting.answer(None, new=LONG)

    def promotions(count):
        for i in range(count):
            name = NAMES[i % len(NAMES)]
            assert setting.answer(name, new=2) == expected[name]
        return [(layercast_program.anonymous_bytes(pid), layercast_program.open_files(pid)) for pid in pids]

    before = promotions(15)
    running = setting.program.start(*setting.asking(None, new=LONG, repeat=2))
    after = promotions(100)
    assert setting.program.finish(running).json["answers"] == [whole, whole]
    for (memory, files), (memory_then, files_then) in zip(before, after):
        assert memory_then - memory < 1 << 19 and files_then == files


def test_memory_is_that_of_the_formula(setting):
    """Slots, host adapters, and one host copy more, of equal size."""
    one = setting.program.run("adapter", "list", "--engine", setting.serve(slots=1).endpoint).json["engines"][0]
    assert (one["host_adapters"], one["host_bytes"]) == (0, 0)
    for tp in (1, 2):
        slot = setting.program.run("adapter", "list", "--engine", setting.serve("--tp", tp, slots=1).endpoint).json["engines"][0]["bytes"]
        engine = serve(setting, slots=2, hosts=3, tp=tp)
        listed = setting.program.run("adapter", "list", "--engine", engine.endpoint).json["engines"][0]
        assert (listed["slots"], listed["bytes"], listed["host_adapters"], listed["host_bytes"]) == (2, 2 * slot, 3, 4 * slot)
        status = setting.program.status(engine)
        assert (status["adapter_bytes"], status["host_adapter_bytes"]) == (2 * slot, 4 * slot)
        setting.load("policy", 0)
        (entry,) = setting.list()
        assert 0 < entry["bytes"] <= slot


def test_host_adapters_that_do_not_fit_are_refused_with_numbers(setting):
    error = setting.program.refused("serve", "--model", setting.base, "--adapter-slots", 1, "--host-adapters", 4095,
                                    "--max-adapter-rank", 512, "--adapter-dtype", "f32")
    assert error["code"] == "resource_exhausted"
    assert "4096 host copies" in error["message"] and "this machine has" in error["message"]


def test_a_pinned_adapter_is_never_dropped(setting):
    serve(setting, slots=2, hosts=1)
    setting.load("pinned", 0)
    setting.load("a", 1)
    setting.load("b", 2)
    setting.call("pin", "pinned")
    assert tiers(setting) == {"pinned": "host", "a": "slot", "b": "slot"}
    for i in range(4):
        setting.load(f"c{i}", 1 + i % 2)
    assert tiers(setting) == {"pinned": "host", "c2": "slot", "c3": "slot"}
    setting.assert_is(setting.answer("pinned"), 0, others=[1, 2])
    setting.load("d", 1)
    assert tiers(setting) == {"pinned": "slot", "c3": "host", "d": "slot"}
    gone = {entry["name"] for entry in setting.list() if entry["state"] == "gone"}
    assert gone == {"a", "b", "c0", "c1", "c2"}


def busy(setting, name):
    """Sequences of an adapter, one after the other, until they are killed."""
    started = setting.program.start(*setting.asking(name, new=60, repeat=10000))
    layercast_program.wait_until(lambda: setting.uses(name) > 0, 20, "it never began")
    return started


def assert_are(setting, answers, version):
    """All of one version, and not of another one."""
    assert answers and setting.distances(answers, version).max() < LIMIT
    assert setting.distances(answers, (version + 1) % 3).max(1).values.min() > APART


def killed(started):
    started[1].kill()
    started[1].communicate()


def test_a_sequence_that_gets_no_slot_in_time_says_who_holds_them(setting):
    """The sequence that has the slot goes on, and so does the base."""
    serve(setting)
    load_all(setting)
    for attempt in range(20):  # the sequence that has the slot may have ended before
        setting.answer("one", new=2)
        asking = setting.program.start(*setting.asking("one", new=LONG, seed=attempt))
        layercast_program.wait_until(lambda: setting.uses("one") > 0 or asking[1].poll() is not None, 20, "it never began")
        failed = setting.program.run(*setting.asking("two"), "--adapter-timeout", 0.05, status=None)
        setting.assert_is(setting.program.finish(asking).json, 0)
        if failed.status:
            break
    error = failed.json["error"]
    assert error["code"] == "resource_exhausted"
    assert "'two'" in error["message"] and "The 1 slots" in error["message"] and "'one' (in use)" in error["message"]
    assert setting.answer(None)["finish"] == "length"
    setting.assert_is(setting.answer("two"), 1, others=[0, 2])


def test_no_adapter_starves_behind_a_busy_one(setting):
    """One slot, and sequences of one adapter without end from several clients: the others are answered, in turn."""
    serve(setting)
    load_all(setting)
    answers = {"two": [], "three": []}
    asking = [busy(setting, "one") for _ in range(3)]
    try:
        for _ in range(3):
            for name in answers:
                answers[name].append(setting.answer(name))
            assert setting.answer(None)["finish"] == "length"
    finally:
        for started in asking:
            killed(started)
    assert_are(setting, answers["two"], 1)
    assert_are(setting, answers["three"], 2)


def test_new_versions_and_unloading_of_what_is_in_a_host_copy(setting):
    serve(setting)
    load_all(setting)
    assert tiers(setting) == {"one": "host", "two": "host", "three": "slot"}
    setting.load("one", 3)
    setting.assert_is(setting.answer("one"), 3, others=[0, 1])
    assert sorted(tiers(setting)) == sorted(NAMES)
    setting.call("unload", "two")
    error = setting.program.run(*setting.asking("two"), status=1).json["error"]
    assert error["code"] == "not_found" and "unloaded" in error["message"]
    setting.assert_is(setting.answer("three"), 2)
    setting.load("four", 1)
    setting.assert_is(setting.answer("one"), 3)
    setting.assert_is(setting.answer("four"), 1)


@pytest.mark.parametrize("on_switch", ["finish", "keep", "abort"])
def test_upserts_while_others_come_and_go(on_switch, setting):
    """Two slots, three names: one gets new versions while sequences of all three are under way."""
    serve(setting, "--adapter-switch", on_switch, slots=2)
    load_all(setting)
    asking = {name: setting.program.start(*setting.asking(name, repeat=6)) for name in NAMES}
    versions = {setting.load("one", number)["version"]["digest"]: number for number in (3, 0, 3, 0)}
    answers = {name: setting.program.finish(started).json["answers"] for name, started in asking.items()}
    assert_are(setting, answers["two"], 1)
    assert_are(setting, answers["three"], 2)
    whole = [answer for answer in answers["one"] if answer["finish"] == "length" and len(answer["spans"]) == 1]
    if on_switch == "finish":
        assert whole == answers["one"]
    for digest, number in versions.items():
        of_it = [answer for answer in whole if answer["spans"][0]["adapter"]["digest"] == digest]
        if of_it:
            assert_are(setting, of_it, number)
    setting.assert_is(setting.answer("one"), 0, others=[1, 2, 3])


def test_an_engine_starts_with_more_adapters_than_slots(setting):
    words = [word for version, name in enumerate(NAMES) for word in ("--adapter", f"{name}={setting.folder(version)}")]
    serve(setting, *words)
    for version, name in enumerate(NAMES):
        setting.assert_is(setting.answer(name), version)
    error = setting.program.run("serve", "--model", setting.base, "--adapter-slots", 1, "--host-adapters", 1, *words, status=2)
    assert "expected at most --adapter-slots and --host-adapters, 2, got 3" in error.errors


def test_what_is_in_a_host_copy_outlasts_weights_that_were_discarded(setting):
    serve(setting)
    load_all(setting)
    expected = {name: plain(setting.answer(name)) for name in NAMES}
    kept = sorted(name for name, tier in tiers(setting).items() if tier == "host")
    assert len(kept) == 2
    engine = ("--engine", setting.engine.endpoint)
    setting.program.run("sleep", *engine, "--level", 2)
    setting.program.run("reload", *engine, "--model", setting.base)
    setting.program.run("wake", *engine)
    assert sorted(tiers(setting)) == kept
    assert {name: plain(setting.answer(name)) for name in kept} == {name: expected[name] for name in kept}

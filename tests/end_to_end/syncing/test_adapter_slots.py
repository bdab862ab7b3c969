"""Which adapters an engine has: slots, evictions, pins and use counts, against a reference of a few lines; and that a
slot in use is not written."""

import random

import pytest

import adapters
import endless
import program as layercast_program
from adapter_setting import AdapterSetting

LONG = 480


@pytest.fixture
def setting(program, start, checkpoint, checkpoint_cache):
    kept = adapters.Kept(checkpoint_cache)
    return AdapterSetting(program, start, kept, kept.base(checkpoint("llama", "a")))


class Reference:
    """What an engine of so many slots has, when nobody uses an adapter for longer than a call."""

    def __init__(self, slots):
        self.slots, self.last_use, self.pinned, self.now = slots, {}, set(), 0

    def use(self, name):
        self.now += 1
        self.last_use[name] = self.now

    def load(self, name):
        """Returns whether it is done. A new version needs a slot beside the old one's."""
        if len(self.last_use) == self.slots:
            victims = [other for other in self.last_use if other not in self.pinned and other != name]
            if not victims:
                return False
            del self.last_use[min(victims, key=lambda other: (self.last_use[other], other))]
        self.use(name)
        return True

    def unload(self, name):
        if name not in self.last_use:
            return False
        del self.last_use[name]
        self.pinned.discard(name)
        return True

    def pin(self, name):
        if name not in self.last_use or (name not in self.pinned and len(self.pinned) + 1 >= self.slots):
            return False
        self.pinned.add(name)
        return True

    def unpin(self, name):
        self.pinned.discard(name)
        return name in self.last_use


def test_evictions_and_pins_are_those_of_the_reference(setting):
    setting.serve("--tp", 2, slots=3)
    reference, chance, done = Reference(3), random.Random(5), []
    for _ in range(120):
        action = chance.choices(["load", "generate", "unload", "pin", "unpin"], [8, 6, 1, 3, 2])[0]
        name = chance.choice("abcde")
        if action == "load":
            expected = reference.load(name)
            got = setting.load(name, ord(name) % 2, status=None)["ok"]
        elif action == "generate":
            expected = name in reference.last_use
            if expected:
                reference.use(name)
            got = setting.program.run(*setting.asking(name, new=2), status=None).status == 0
        else:
            expected = getattr(reference, action)(name)
            got = setting.call(action, name, status=None)["ok"]
        done.append((action, name, got))
        assert got == expected, done
        served = {entry["name"]: entry for entry in setting.list() if entry["state"] == "served"}
        assert set(served) == set(reference.last_use), done
        assert {name for name, entry in served.items() if entry["pinned"]} == reference.pinned, done
        assert len({entry["slot"] for entry in served.values()}) == len(served)
    seen = {(action, got) for action, _, got in done}
    assert seen >= {("load", True), ("load", False), ("pin", True), ("pin", False), ("unload", True)}


def begun(setting, name, seed=0):
    """A long sequence that is under way."""
    started = setting.program.start(*setting.asking(name, new=LONG, seed=seed))
    layercast_program.wait_until(lambda: setting.uses(name) > 0 or started[1].poll() is not None, 20, "it never began")
    return started


def in_the_midst(setting, name, act, undo=lambda done: None):
    """Does something while a sequence of the adapter is under way; returns its answer, and what was done. If the sequence had
    ended before, that is undone and done again."""
    for attempt in range(20):
        started = begun(setting, name, attempt)
        done = act()
        still = started[1].poll() is None
        answer = setting.program.finish(started).json
        if still:
            return answer, done
        undo(done)
        if name not in setting.names():
            setting.load(name, 0)
    raise AssertionError("every sequence ended too early")


def test_a_sequence_outlives_the_unloading_of_its_adapter(setting):
    setting.serve(slots=1)
    setting.load("policy", 0)

    def unload():
        assert setting.call("unload", "policy")["ok"]
        gone = setting.program.run(*setting.asking("policy"), status=1).json["error"]
        return gone, setting.list()

    answer, (error, listed) = in_the_midst(setting, "policy", unload)
    assert len(answer["tokens"]) == LONG
    setting.assert_is(answer, 0)
    assert error["code"] == "not_found" and "'policy'" in error["message"] and "unloaded" in error["message"]
    assert {entry["state"] for entry in listed} == {"retired", "gone"}
    assert [entry["state"] for entry in setting.list()] == ["gone"]
    setting.load("policy", 1)  # into the only slot
    setting.assert_is(setting.answer(), 1, others=[0])


def test_a_slot_in_use_is_waited_for_and_not_written(setting):
    """One slot: another adapter gets it when the sequence has ended."""
    setting.serve(slots=1)
    setting.load("policy", 0)
    command = ("adapter", "load", "--engine", setting.engine.endpoint, "--name", "other", "--path", setting.folder(1))
    answer, done = in_the_midst(setting, "policy", lambda: setting.program.start(*command), undo=setting.program.finish)
    assert len(answer["tokens"]) == LONG
    setting.assert_is(answer, 0)
    assert setting.program.finish(done).json["outcomes"][0]["ok"]
    setting.assert_is(setting.answer("other"), 1, others=[0])
    gone = [entry for entry in setting.list() if entry["state"] == "gone"]
    assert [entry["name"] for entry in gone] == ["policy"] and "'other'" in gone[0]["why"]


def test_who_holds_the_slots_is_said_when_the_wait_is_over(setting, tmp_path):
    setting.base = endless.endless_copy(setting.base, tmp_path / "endless")
    setting.serve(slots=2)
    setting.load("pinned", 1, "--pin")
    setting.load("policy", 0)
    _, asking = setting.program.start(*setting.asking("policy", new=endless.TOKENS))
    layercast_program.wait_until(lambda: setting.uses("policy") == 1, 20, "it never began")
    error = setting.load("other", 1, "--timeout", 6, status=1)["error"]
    asking.kill()  # nobody waits for its sequence any more
    asking.communicate()
    assert error["code"] == "resource_exhausted", error
    assert "'policy' (in use)" in error["message"] and "'pinned' (pinned)" in error["message"] and "--adapter-slots" in error["message"]
    layercast_program.wait_until(lambda: setting.uses("policy") == 0, 20, "sequences without anybody go on")
    assert sorted(setting.names()) == ["pinned", "policy"]
    setting.assert_is(setting.answer(), 0, others=[1])


def test_an_upsert_needs_a_slot_beside_its_own(setting):
    setting.serve(slots=1)
    first = setting.load("policy", 0)
    done = setting.load("policy", 1, status=1)
    assert done["error"]["code"] == "resource_exhausted" and "--adapter-slots" in done["error"]["message"]
    assert done["version"] == first["version"]
    setting.assert_is(setting.answer(), 0, others=[1])


def test_a_pin_outlives_upserts_and_the_last_slot_cannot_be_pinned(setting):
    setting.serve(slots=2)
    setting.load("policy", 0, "--pin")
    setting.load("other", 1)
    assert setting.call("pin", "other", status=1)["error"]["code"] == "failed_precondition"
    setting.load("policy", 1)  # evicts the other
    assert [(entry["name"], entry["pinned"]) for entry in setting.list() if entry["state"] == "served"] == [("policy", True)]
    setting.load("third", 0)
    assert setting.names() == ["policy", "third"]
    setting.call("unpin", "policy")
    setting.answer("third")
    setting.load("fourth", 1)
    assert setting.names() == ["fourth", "third"]


def test_an_engine_starts_with_the_adapters_that_it_is_told(setting):
    setting.serve("--tp", 2, "--adapter", f"one={setting.folder(0)}", "--adapter", f"two={setting.folder(1)}", slots=3)
    assert setting.names() == ["one", "two"]
    setting.assert_is(setting.answer("one"), 0, others=[1])
    setting.assert_is(setting.answer("two"), 1, others=[0])


def test_memory_is_that_of_the_formula(setting):
    """slots * the sum over layers and their parts of (columns of this rank + rows of this rank) * the largest rank * bytes."""
    hidden, intermediate, heads, kv_heads, head_dim, vocabulary = 160, 344, 8, 2, 40, 1003
    for tp, dtype, width in ((1, "f32", 4), (2, "f32", 4), (2, "bf16", 2)):
        engine = setting.serve("--tp", tp, "--adapter-dtype", dtype, "--adapter-modules", "qkv_proj,o_proj,gate_up_proj,down_proj",
                               slots=5, max_rank=7)
        q, kv, part = heads // tp * head_dim, max(1, kv_heads // tp) * head_dim, intermediate // tp
        layer = (hidden + q) + 2 * (hidden + kv) + (q + hidden) + 2 * (hidden + part) + (part + hidden)
        said = setting.program.run("adapter", "list", "--engine", engine.endpoint).json["engines"][0]
        assert (said["slots"], said["bytes"]) == (5, 5 * 2 * layer * 7 * width)
    whole = setting.program.run("adapter", "list", "--engine", setting.serve(slots=5, max_rank=7).endpoint).json["engines"][0]["bytes"]
    q, kv = heads * head_dim, kv_heads * head_dim
    layer = (hidden + q) + 2 * (hidden + kv) + (q + hidden) + 2 * (hidden + intermediate) + (intermediate + hidden)
    padded = whole // (5 * 7 * 4) - 2 * layer - 2 * hidden  # rows of the embedding, and of the head
    assert padded >= 2 * vocabulary and padded % 2 == 0 and padded // 2 - vocabulary < 64


def test_upserts_take_no_memory(setting):
    """All memory of slots is taken at the start; what a load takes beside is given back."""
    pids = setting.serve("--tp", 2).pids
    folders = [setting.folder(version) for version in (0, 1)]

    def upserts(count):
        for i in range(count):
            setting.load_from("--path", folders[i % 2])
        return [(layercast_program.anonymous_bytes(pid), layercast_program.open_files(pid)) for pid in pids]

    before = upserts(20)
    after = upserts(100)
    for (memory, files), (memory_then, files_then) in zip(before, after):
        assert memory_then - memory < 1 << 19 and files_then == files

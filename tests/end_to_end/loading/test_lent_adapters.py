"""Engines that take what another engine serves: its adapters come with its base, at the same versions, byte for byte."""

import pytest

import adapters
from adapter_setting import AdapterSetting

TP = 2
LIKE_IT = ("name", "version", "base", "rank", "modules", "zero_modules", "skipped", "warnings", "unused", "digests")


@pytest.fixture
def setting(program, start, checkpoint, checkpoint_cache):
    kept = adapters.Kept(checkpoint_cache)
    return AdapterSetting(program, start, kept, kept.base(checkpoint("llama", "a")))


@pytest.fixture
def lender(setting):
    """An engine that serves `policy` of a publisher and `critic` of a folder."""
    engine = setting.serve("--tp", TP)
    setting.load_from("--publisher", setting.publish(0, 7).endpoint)
    setting.load("critic", 1, "--pin")
    return engine


def borrower(setting, lender, *words, **how):
    return setting.serve("--tp", TP, "--load-format", "remote", "--from-engine", lender.endpoint, *words, **how)


def taken(setting, engine):
    return [{field: entry[field] for field in LIKE_IT} for entry in setting.list(engine) if entry["state"] == "served"]


def refusal(setting, lender, *words):
    command = ("serve", "--model", setting.base, "--tp", TP, "--load-format", "remote", "--from-engine", lender.endpoint, *words)
    return setting.program.run(*command, status=1).json["error"]


def test_an_engine_that_starts_from_another_one_serves_its_adapters(setting, lender):
    engine = borrower(setting, lender)
    assert taken(setting, engine) == taken(setting, lender)
    assert setting.names(engine) == ["critic", "policy"]
    assert not any(entry["pinned"] for entry in setting.list(engine))  # whom to keep is each engine's own affair
    for name, version in (("policy", 0), ("critic", 1)):
        assert setting.is_whole(version, name)  # of the borrower, which was started last
        assert setting.answer(name) == setting.answer(name, engine=lender)
    setting.assert_is(setting.answer("policy"), 0, others=[1])
    assert setting.program.run("verify", "--engine", engine.endpoint, "--model", setting.base).json["equal"]


def test_an_engine_keeps_up_with_another_one(setting, lender):
    engine = borrower(setting, lender)
    setting.load_from("--publisher", setting.publish(2, 8).endpoint, engine=lender)
    outcome = setting.program.reload(engine, "--from-engine", lender.endpoint, "--adapters", "policy")
    assert list(outcome["report"]["adapters"]) == ["policy"] and outcome["report"]["adapters"]["policy"]["bytes"] > 0
    assert taken(setting, engine) == taken(setting, lender)
    setting.assert_is(setting.answer("policy"), 2, others=[0])
    before = setting.list(engine)
    refused = setting.program.reload(engine, "--from-engine", lender.endpoint, "--adapters", "other", status=1)
    assert refused["error"]["code"] == "not_found" and "it serves 'critic', 'policy'" in refused["error"]["message"]
    assert setting.list(engine) == before


def test_what_one_adapter_lacks_does_not_come_with_it(setting):
    """Terms that only an earlier adapter of the slot had are neither lent nor read."""
    lender = setting.serve("--tp", TP, slots=2)
    setting.load("policy", 0)
    setting.load_from("--path", setting.folder(3, targets="attention"))
    setting.load_from("--path", setting.folder(4, targets="attention"))
    engine = borrower(setting, lender, slots=2)
    assert taken(setting, engine) == taken(setting, lender)
    assert setting.answer() == setting.answer(engine=lender)


def test_slots_that_are_made_otherwise_are_refused_by_name(setting, lender):
    for words, said in ((("--max-adapter-rank", 8), "--max-adapter-rank expected 8, got 16"),
                        (("--adapter-dtype", "bf16"), '--adapter-dtype expected "bf16", got "f32"'),
                        (("--adapter-modules", "qkv_proj"), '--adapter-modules expected ["qkv_proj"], got []')):
        error = refusal(setting, lender, "--adapter-slots", 3, *words)
        assert error["code"] == "invalid_argument" and said in error["message"]
    error = refusal(setting, lender, "--adapter-slots", 1)
    assert error["code"] == "resource_exhausted" and "(is being loaded)" in error["message"]


def test_an_engine_without_slots_takes_the_base_alone(setting, lender):
    engine = borrower(setting, lender, slots=0)
    assert engine.version == setting.program.status(lender)["version"] and setting.list(engine) == []


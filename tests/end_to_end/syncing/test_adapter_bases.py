"""What an adapter says of its base, told by `publish --adapter-base`: engines of another base refuse it, and it holds off
other bases while it stays."""

import pytest

import adapters
from adapter_setting import AdapterSetting


@pytest.fixture
def setting(program, start, checkpoint, checkpoint_cache):
    kept = adapters.Kept(checkpoint_cache)
    return AdapterSetting(program, start, kept, kept.base(checkpoint("llama", "a")))


def text_of(version):
    return f"{version['lineage']}@{version['step']}:{version['digest']}"


def served(setting):
    return setting.program.status(setting.engine)["version"]


def publish_base(setting, spec_base, step):
    return setting.start("publish", "--model", spec_base, "--lineage", "base", "--step", step)


def test_an_adapter_holds_off_a_base_that_it_was_not_trained_on(setting, checkpoint):
    other = publish_base(setting, setting.kept.base(checkpoint("llama", "b")), 2)
    own = publish_base(setting, setting.base, 1)
    setting.serve("--tp", 2)
    setting.program.reload(setting.engine, "--publisher", own.endpoint)
    trained_on = served(setting)
    assert trained_on == own.version
    publisher = setting.publish(0, 5, "--adapter-base", text_of(trained_on))
    setting.load_from("--publisher", publisher.endpoint)
    assert [entry["base"] for entry in setting.list()] == [trained_on]
    setting.assert_is(setting.answer(), 0)

    refused = setting.program.reload(setting.engine, "--publisher", other.endpoint, status=1)["error"]
    assert refused["code"] == "failed_precondition" and "'policy'" in refused["message"] and "base@2" in refused["message"]
    assert served(setting) == trained_on and setting.names() == ["policy"]
    setting.assert_is(setting.answer(), 0)

    setting.program.reload(setting.engine, "--publisher", own.endpoint)  # the same base is taken at any time
    setting.program.reload(setting.engine, "--publisher", other.endpoint, "--keep-adapters")
    assert served(setting) == other.version and setting.names() == ["policy"]


def test_an_engine_of_another_base_refuses_an_adapter(setting, checkpoint):
    other = publish_base(setting, setting.kept.base(checkpoint("llama", "b")), 1)
    setting.serve()
    before = setting.answer(None)
    publisher = setting.publish(0, 5, "--adapter-base", text_of(other.version))
    error = setting.load_from("--publisher", publisher.endpoint, status=1)["error"]
    assert error["code"] == "failed_precondition"
    assert "was trained on base@1" in error["message"] and served(setting)["digest"][:16] in error["message"]
    assert setting.list() == [] and setting.answer(None) == before
    setting.program.reload(setting.engine, "--publisher", other.endpoint)
    setting.load_from("--publisher", publisher.endpoint)
    assert [entry["base"] for entry in setting.list()] == [other.version]


@pytest.mark.parametrize("words, said", [
    (("--adapter", "a={good}", "--adapter-base", "run@1"), "LINEAGE@STEP:DIGEST"),
    (("--adapter", "a={good}", "--adapter-base", "run@1:0123456789abcdef"), "32 digits"),
    (("--adapter", "a={good}", "--adapter-base", "run:" + "0" * 32), "--adapter-base: expected LINEAGE@STEP"),
    (("--model", "{base}", "--adapter-base", "run@1:" + "1" * 32), "expected --adapter"),
    (("--model", "{base}", "--adapter", "a={good}", "--adapter-base", "run@1:" + "1" * 32), "this version's own")])
def test_a_base_that_is_none_is_wrong_usage(words, said, setting):
    words = [word.format(good=setting.folder(0), base=setting.base) for word in words]
    assert said in setting.program.refused("publish", *words, status=2)["message"]

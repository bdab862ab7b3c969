"""What `layercast export` writes is an engine's state: `layercast serve` starts from it with the same bytes, and that engine
is one like any other."""

import pytest

import recipes

PROMPT = (3, 11, 4, 250)


@pytest.mark.parametrize("spec, recipe", [("qwen3_blocks" if recipe in recipes.COLUMN_UNITS else "qwen2", recipe)
                                          for recipe in recipes.RECIPES] + [("deepseek_v3", "fp8_per_channel")])
def test_an_engine_that_starts_from_an_export_serves_its_bytes_and_reloads(spec, recipe, program, start, checkpoint,
                                                                           tmp_path, assert_serves):
    a, b = checkpoint(spec, "a"), checkpoint(spec, "b")
    first = start("serve", "--model", a, "--tp", 2, "--quantization", recipe)
    publisher = start("publish", "--checkpoint", b)
    program.reload(first, "--publisher", publisher.endpoint)
    said = program.export(first, tmp_path / "state")
    assert said["version"] == publisher.version

    second = start("serve", "--model", tmp_path / "state", "--tp", 2, "--quantization", recipe)
    assert_serves(second, b, recipe)
    digests = [[rank["served_digest"] for rank in program.status(engine)["ranks"]] for engine in (first, second)]
    assert digests[0] == digests[1]
    answers = [program.generate(engine, PROMPT, "--max-new", 6)["tokens"] for engine in (first, second)]
    assert answers[0] == answers[1]

    assert program.reload(second, "--weights-path", a)["ok"]
    assert_serves(second, a, recipe)
    assert program.reload(second, "--publisher", publisher.endpoint)["version"] == publisher.version
    assert_serves(second, b, recipe)
    # Another number of ranks has other parts: refused, and by name.
    refused = program.run("serve", "--model", tmp_path / "state", "--tp", 1, "--quantization", recipe, status=1)
    assert "rank" in refused.json["error"]["message"]

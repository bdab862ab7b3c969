"""What `layercast export` writes is an engine's state: `layercast serve` starts from it with the same bytes, and that engine
is one like any other."""

import pytest
import safetensors.torch

import oracle
import recipes

PROMPT = (3, 11, 4, 250)


@pytest.mark.parametrize("spec, recipe", [("qwen3_blocks" if recipe in recipes.COLUMN_UNITS else "qwen2", recipe)
                                          for recipe in recipes.RECIPES] + [("deepseek_v3", "fp8_per_channel")])
def test_an_engine_that_starts_from_an_export_serves_its_bytes_and_reloads(spec, recipe, program, start, checkpoint,
                                                                           tmp_path, assert_serves):
    a, b = checkpoint(spec, "a"), checkpoint(spec, "b")
    first = start("serve", "--model", a, "--tp", 2, "--quantization", recipe)
    publisher = start("publish", "--model", b)
    program.reload(first, "--publisher", publisher.endpoint)
    said = program.export(first, tmp_path / "state")
    assert said["version"] == publisher.version

    second = start("serve", "--model", tmp_path / "state", "--tp", 2, "--quantization", recipe)
    assert second.version == publisher.version
    assert_serves(second, b, recipe)
    digests = [[rank["served_digest"] for rank in program.status(engine)["ranks"]] for engine in (first, second)]
    assert digests[0] == digests[1]
    answers = [program.generate(engine, PROMPT, "--max-new", 6)["tokens"] for engine in (first, second)]
    assert answers[0] == answers[1]

    assert program.reload(second, "--model", a)["ok"]
    assert_serves(second, a, recipe)
    assert program.reload(second, "--publisher", publisher.endpoint)["version"] == publisher.version
    assert_serves(second, b, recipe)
    # Another number of ranks has other parts: refused, and by name.
    refused = program.run("serve", "--model", tmp_path / "state", "--tp", 1, "--quantization", recipe, status=1)
    assert "more than 1 ranks" in refused.json["error"]["message"]


def test_scales_of_powers_of_two_all_the_way(program, start, checkpoint, tmp_path):
    recipe = ("--tp", 2, "--quantization", "fp8_per_block", "--power-of-two-scales")
    a, b = checkpoint("qwen3_blocks", "a"), checkpoint("qwen3_blocks", "b")

    def assert_exports(engine, folder, out):
        program.export(engine, tmp_path / out)
        for rank in range(2):
            expected = oracle.served_tensors(folder, 2, rank, "fp8_per_block", True)
            assert oracle.differences(oracle.read_export(tmp_path / out, rank), expected) == []

    first = start("serve", "--model", a, *recipe)
    assert_exports(first, a, "first")
    publisher = start("publish", "--model", b)
    assert program.reload(first, "--publisher", publisher.endpoint)["version"] == publisher.version
    assert_exports(first, b, "state")
    second = start("serve", "--model", tmp_path / "state", *recipe)
    assert second.version == publisher.version
    assert program.generate(second, PROMPT, "--max-new", 4)["tokens"] == program.generate(first, PROMPT, "--max-new", 4)["tokens"]


def test_files_of_other_versions_ranks_and_bytes_are_refused(program, start, checkpoint, tmp_path):
    second_ranks = "model-rank-1-part-0.safetensors"
    a, b = tmp_path / "state-a", tmp_path / "state-b"
    engine = start("serve", "--model", checkpoint("qwen2", "a"), "--tp", 2)
    program.export(engine, a)
    program.reload(engine, "--model", checkpoint("qwen2", "b"))
    exported = program.export(engine, b)["version"]

    def refusal(content):
        (a / second_ranks).write_bytes(content)
        for serve in (("serve", "--model", a, "--tp", 2), ("serve", "--model", a, "--tp", 2, "--commit", "in_place")):
            message = program.run(*serve, status=1).json["error"]["message"]
            assert second_ranks in message
        loaded = program.run("reload", "--engine", engine.endpoint, "--model", a, status=1)
        assert second_ranks in loaded.json["engines"][0]["error"]["message"]
        assert program.status(engine)["version"] == exported
        return message

    whole = (a / second_ranks).read_bytes()
    message = refusal((b / second_ranks).read_bytes())
    assert f"got {exported['lineage']}@{exported['step']}:{exported['digest'][:16]}" in message
    assert "rank: expected 1, got 0" in refusal((a / "model-rank-0-part-0.safetensors").read_bytes())
    assert "digest of the rank's tensors" in refusal(whole[:-1] + bytes([whole[-1] ^ 1]))
    (a / second_ranks).unlink()
    message = program.run("serve", "--model", a, "--tp", 2, status=1).json["error"]["message"]
    assert message.endswith(f"{a}: rank 1: expected {a / second_ranks}, which is not there")
    (a / second_ranks).write_bytes(whole)
    assert program.reload(engine, "--model", a)["ok"]


def test_what_other_tools_wrote_is_called_after_its_folder(program, start, checkpoint, tmp_path, assert_serves):
    folder, state = checkpoint("qwen2", "a"), tmp_path / "state"
    program.export(start("serve", "--model", folder, "--tp", 2), state)
    for path in state.glob("*.safetensors"):
        safetensors.torch.save_file(safetensors.torch.load_file(path), path)  # metadata and all
    engine = start("serve", "--model", state, "--tp", 2)
    assert (engine.version["lineage"], engine.version["step"]) == ("state", 0)
    assert_serves(engine, folder, "none")


def test_an_export_that_fails_names_the_reason_and_leaves_engine_and_folder_as_they_were(program, start, checkpoint,
                                                                                       tmp_path, assert_serves):
    a, b = checkpoint("qwen2", "a"), checkpoint("qwen2", "b")
    engine = start("serve", "--model", a, "--tp", 2)
    state = tmp_path / "state"
    program.export(engine, state)
    before = contents(state)
    program.reload(engine, "--model", b)

    (tmp_path / "file").write_text("")
    refusals = {
        "no folder can be made there": (tmp_path / "file" / "state", "Not a directory"),
        "a file is there": (tmp_path / "file", "Not a directory"),
        "what nobody may make": ("/proc/state", "/proc/state"),
    }
    for why, (folder, words) in refusals.items():
        message = program.run("export", "--engine", engine.endpoint, "--out", folder, status=1).json["error"]["message"]
        assert str(folder) in message and words in message, why
    # Rank 0's file could be replaced, and rank 1's not: neither is.
    (state / "model-rank-1-part-0.safetensors").unlink()
    (state / "model-rank-1-part-0.safetensors").mkdir()
    del before["model-rank-1-part-0.safetensors"]
    refused = program.run("export", "--engine", engine.endpoint, "--out", state, status=1)
    assert "model-rank-1-part-0.safetensors" in refused.json["error"]["message"]
    (state / "model-rank-1-part-0.safetensors").rmdir()
    assert contents(state) == before

    program.export(engine, state)
    assert contents(state) != before
    assert_serves(start("serve", "--model", state, "--tp", 2), b, "none")


def test_an_engine_exports_into_the_folder_that_it_came_from(program, start, checkpoint, tmp_path, assert_serves):
    a = checkpoint("qwen2", "a")
    first = start("serve", "--model", a, "--tp", 2)
    state = tmp_path / "state"
    program.export(first, state)
    second = start("serve", "--model", state, "--tp", 2)
    config = (state / "config.json").read_bytes()
    (state / "config.json").unlink()  # trainers clear old checkpoints away
    program.export(second, state)
    assert (state / "config.json").read_bytes() == config
    program.export(second, state)
    assert_serves(start("serve", "--model", state, "--tp", 2), a, "none")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}

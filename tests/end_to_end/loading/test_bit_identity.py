"""The main promise: after a live reload an engine of several ranks serves, byte for byte, what a fresh engine holds
after loading that version cold, and what the oracle computes from the same files; whatever the channel, the order, the
split.

One engine for each family x tp x recipe lives through every order, of two ranks on every channel, of others on channels in turn.
Publishers live through a whole file."""

import itertools

import pytest

import checkpoints
import recipes

CHANNELS = ("shm", "zmq")
# How a version is published: a name, and the arguments.
WAYS = {
    "snapshot": ("--mode", "snapshot"),
    "stream in layer order": ("--mode", "stream", "--order", "layer"),
    "stream in checkpoint order": ("--mode", "stream", "--order", "checkpoint"),
    "shuffled stream": ("--mode", "stream", "--order", "shuffled:7"),
}
# By number of ranks, each way's channels.
CELLS = {1: [(CHANNELS[i % 2], way) for i, way in enumerate(WAYS)],
         2: [(channel, way) for channel in CHANNELS for way in WAYS],
         4: [(CHANNELS[1 - i % 2], way) for i, way in enumerate(WAYS)]}
PROMPT = (3, 11, 4)
# Engines split a version into chunks of different sizes.
CHUNK_BYTES = dict(zip(recipes.RECIPES, itertools.cycle((5_000, 40_000, 100_000, 4 << 20))))
# Recipes of one way to scale go through the same code; those of blocks ask for whole blocks of columns.
MATRIX = [(family, recipe) for family in checkpoints.FAMILIES for recipe in recipes.RECIPES[:4]]
MATRIX += [("llama", "int8_per_channel"), ("qwen3_blocks", "mxfp8"), ("qwen3_blocks", "nvfp4")]


@pytest.fixture(scope="module")
def publisher(start_shared, checkpoint):
    """publisher(family, version, way) -> a running publisher, started when first asked for."""
    started = {}

    def get(family, version, way):
        key = (family, version, way)
        if key not in started:
            started[key] = start_shared("publish", "--model", checkpoint(family, version), *WAYS[way])
        return started[key]

    return get


@pytest.mark.parametrize("tp", CELLS)
@pytest.mark.parametrize("family, recipe", MATRIX)
def test_a_live_reload_serves_the_bytes_of_a_cold_load(family, tp, recipe, program, start, publisher, checkpoint,
                                                       assert_serves):
    folders = {version: checkpoint(family, version) for version in checkpoints.VERSIONS}
    engine = start("serve", "--model", folders["a"], "--tp", tp, "--quantization", recipe,
                   "--chunk-bytes", CHUNK_BYTES[recipe])
    assert len(set(engine.pids)) == tp
    assert_serves(engine, folders["a"], recipe)
    digests = {"a": served_digests(program.status(engine))}

    version = "a"
    for channel, way in CELLS[tp]:
        version = "b" if version == "a" else "a"
        source = publisher(family, version, way)
        assert not set(source.pids) & set(engine.pids)
        done = program.reload(engine, "--publisher", source.endpoint, "--channel", channel)
        cell = f"{way} over {channel}"
        assert done["ok"] and is_named(done["version"], source.version, way), cell
        check_report(done["report"], channel, way)
        # The digest is read back from the captured buffers; the bytes themselves are compared when a version is
        # first served, and at the end.
        if version not in digests:
            assert_serves(engine, folders[version], recipe)
            assert program.run("verify", "--engine", engine.endpoint, "--model", folders[version]).json["equal"]
            digests[version] = served_digests(done["report"])
        assert served_digests(done["report"]) == digests[version], cell
    assert version == "a"
    assert_serves(engine, folders["a"], recipe)
    assert digests["a"] != digests["b"]
    assert program.run("verify", "--engine", engine.endpoint, "--model", folders["b"], status=1).json["differences"]
    engine.stop()


@pytest.mark.parametrize("spec, tp, recipe", [("phi3", 2, "fp8_per_block"), ("gemma2", 1, "fp8_per_tensor"),
                                              ("gemma3_vision", 4, "fp8_per_channel"), ("qwen2_moe", 2, "none"),
                                              ("glm4_moe", 4, "fp8_per_tensor"), ("mamba2", 2, "fp8_per_tensor"),
                                              ("deepseek_v3", 2, "fp8_per_channel"),
                                              ("minimax_m2", 4, "nvfp4"), ("gpt_oss", 4, "fp8_per_tensor"),
                                              ("gpt_oss_blocks", 2, "mxfp8"),
                                              ("qwen3_next", 2, "fp8_per_tensor"), ("qwen3_5_moe", 1, "fp8_per_block"),
                                              ("qwen3_5_vision", 4, "fp8_per_channel")])
def test_files_that_are_fused_or_named_in_their_own_way(spec, tp, recipe, program, start, publisher, checkpoint,
                                                        assert_serves):
    engine, cold = (start("serve", "--model", checkpoint(spec, version), "--tp", tp, "--quantization", recipe)
                    for version in checkpoints.VERSIONS)
    assert_serves(engine, checkpoint(spec, "a"), recipe)
    before, expected = (answer_of(program, asked) for asked in (engine, cold))
    done = program.reload(engine, "--publisher", publisher(spec, "b", "snapshot").endpoint)
    assert done["ok"] and (bool(done["report"]["skipped"]) == spec.endswith("_vision"))
    assert_serves(engine, checkpoint(spec, "b"), recipe)
    assert answer_of(program, engine) == expected
    # Tied embeddings, multiplied, say the prompt's last token again in any version.
    assert (expected == before) == (spec == "gemma3_vision")
    engine.stop()
    cold.stop()


@pytest.mark.parametrize("recipe", ["fp8_per_tensor", "fp8_per_channel"])
def test_a_trainer_may_send_experts_stacked_where_the_files_have_them_one_by_one(recipe, program, start, publisher,
                                                                                 checkpoint, assert_serves):
    engine = start("serve", "--model", checkpoint("mixtral", "a"), "--tp", 2, "--quantization", recipe)
    assert_serves(engine, checkpoint("mixtral", "a"), recipe)
    for spec, version, way in (("mixtral_stacked", "b", "snapshot"), ("mixtral", "b", "shuffled stream"),
                               ("mixtral_stacked", "a", "stream in checkpoint order")):
        assert program.reload(engine, "--publisher", publisher(spec, version, way).endpoint)["ok"]
        assert_serves(engine, checkpoint(spec, version), recipe)
    engine.stop()


def answer_of(program, engine):
    """Tokens, and the logarithm of each one's probability."""
    said = program.generate(engine, PROMPT, "--max-new", 8, "--logprobs")
    assert len(said["tokens"]) == len(said["logprobs"]) == 8
    return said["tokens"], said["logprobs"]


def is_named(version, published, way):
    # A stream's digest is known when its last tensor has come; until then it is that of names and shapes alone.
    fields = ("lineage", "step", "digest") if way == "snapshot" else ("lineage", "step")
    return all(version[field] == published[field] for field in fields)


def served_digests(report):
    return [rank["served_digest"] for rank in report["ranks"]]


def check_report(report, channel, way):
    assert report["channel"]["name"] == channel
    assert 0 < report["bytes"] == report["bytes_total"]
    # A layer is done as soon as its tensors are there, unless a stream mixes layers; then the report says so.
    assert bool(report["out_of_order"]) == (way in ("shuffled stream", "stream in checkpoint order"))

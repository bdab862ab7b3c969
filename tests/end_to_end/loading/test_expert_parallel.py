"""Engines whose ranks hold whole experts each, instead of a part of each expert."""

import oracle
import pytest

PROMPT = (3, 11, 4, 250)
RECIPE = "fp8_per_channel"
# Of five experts the first of two ranks has one more.
HELD = {"contiguous": (slice(0, 3), slice(3, 5)), "round_robin": (slice(0, 5, 2), slice(1, 5, 2))}
spread_experts = pytest.mark.parametrize("placement", HELD)


def spread(folder, rank, placement):
    """What a rank of two serves: its experts whole, and of all else what it serves anyway."""
    expected = oracle.served_tensors(folder, 2, rank, RECIPE)
    for name, stack in oracle.served_tensors(folder, 1, 0, RECIPE).items():
        if ".experts." in name:
            expected[name] = stack[HELD[placement][rank]]
    return expected


@spread_experts
def test_whole_experts_on_each_rank(placement, program, start, checkpoint, tmp_path):
    a, b = checkpoint("mixtral", "a"), checkpoint("mixtral", "b")
    serve = ("serve", "--tp", 2, "--quantization", RECIPE, "--model")
    spreading = "--expert-parallel", "--expert-placement", placement
    engine, split = start(*serve, a, *spreading), start(*serve, a)
    assert engine.ready["expert_parallel"] and not split.ready["expert_parallel"]
    assert engine.ready["expert_placement"] == placement
    before = program.generate(engine, PROMPT, "--max-new", 6)["tokens"]
    publisher = start("publish", "--model", b)
    for one in (engine, split):
        assert program.reload(one, "--publisher", publisher.endpoint)["ok"]
    program.export(engine, tmp_path / "export")
    for rank in range(2):
        assert oracle.differences(oracle.read_export(tmp_path / "export", rank), spread(b, rank, placement)) == []
    answers = [program.generate(one, PROMPT, "--max-new", 6)["tokens"] for one in (engine, split)]
    assert answers[0] == answers[1] != before
    # What it serves is for engines that are laid out alike, and for no others: exported or lent.
    served = start("serve", "--tp", 2, "--quantization", RECIPE, "--model", tmp_path / "export", *spreading)
    assert program.generate(served, PROMPT, "--max-new", 6)["tokens"] == answers[0]
    lent = ("--load-format", "remote", "--from-engine", engine.endpoint)
    twin = start(*serve, a, *spreading, *lent)
    assert program.generate(twin, PROMPT, "--max-new", 6)["tokens"] == answers[0]
    refused = program.run(*serve, a, *lent, status=1)
    assert "expert_parallel expected false, got true" in refused.errors
    other = next(name for name in HELD if name != placement)
    for source in (a, *lent), (tmp_path / "export",):
        refused = program.run(*serve, *source, "--expert-parallel", "--expert-placement", other, status=1)
        assert f"expert_placement expected {other}, got {placement}" in refused.errors.replace("placement:", "placement")


def test_ranks_without_an_expert_serve_all_else(program, start, checkpoint):
    """Eight ranks, five experts."""
    a, b = checkpoint("mixtral", "a"), checkpoint("mixtral", "b")
    engine = start("serve", "--tp", 8, "--quantization", RECIPE, "--expert-parallel", "--model", a)
    publisher = start("publish", "--model", b)
    assert program.reload(engine, "--publisher", publisher.endpoint)["ok"]
    alone = start("serve", "--quantization", RECIPE, "--model", b)
    answers = [program.generate(one, PROMPT, "--max-new", 6)["tokens"] for one in (engine, alone)]
    assert answers[0] == answers[1]


@spread_experts
def test_a_plan_has_whole_experts(placement, program, checkpoint):
    plan = program.run("plan", "--model", checkpoint("mixtral", "a"), "--tp", 2, "--rank", 1, "--expert-parallel",
                       "--expert-placement", placement).json
    assert plan["problems"] == []
    experts = {placement["tensor"].split(".experts.")[1].split(".")[0]
               for placement in plan["placements"] if ".experts." in placement["tensor"]}
    assert experts == {str(expert) for expert in range(5)[HELD[placement][1]]}

"""`layercast plan` and `layercast inspect`: what they print is checked by doing it. The placements of a plan, carried out
with torch's slices on the checkpoint's tensors, make what the oracle serves."""

import pytest
import torch

import checkpoints
import drafts
import oracle


def part(tensor, ranges):
    return tensor[tuple(slice(begin, end) for begin, end in ranges)]


def laid_out(tensor, placement):
    """In the order in which it lands."""
    if placement["transposed"]:
        tensor = tensor.transpose(-1, -2)
    if placement["interleaved"]:
        tensor = torch.cat([tensor[:, 0::2], tensor[:, 1::2]], dim=1)
    return tensor


@pytest.mark.parametrize("spec", checkpoints.SPECS)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_carrying_out_a_plan_makes_what_is_served(spec, tp, program, checkpoint):
    folder = checkpoint(spec, "a")
    source = oracle.read_tensors(folder)
    for rank in {0, tp - 1}:
        plan = program.run("plan", "--model", folder, "--tp", tp, "--rank", rank).json
        assert (plan["tp"], plan["rank"], plan["problems"]) == (tp, rank, [])
        expected = oracle.served_tensors(folder, tp, rank)
        for derived in plan["derived"]:  # placed from no tensor
            tensor = expected.pop(derived["name"])
            assert derived["shape"] == list(tensor.shape) and derived["from"] in (["weight"], ["A_log"])
        made = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
        written = {name: torch.zeros(tensor.shape, dtype=torch.int8) for name, tensor in expected.items()}
        for placement in plan["placements"]:
            tensor = source[placement["tensor"]]
            assert list(tensor.shape) == placement["shape"]
            target = f"{placement['layer']}.{placement['parameter']}"
            part(made[target], placement["destination"]).copy_(
                laid_out(part(tensor.reshape(placement["read_as"]), placement["source"]), placement))
            part(written[target], placement["destination"]).add_(1)
        assert oracle.differences(made, expected) == []
        for name, times in written.items():
            padding = name in ("model.embed_tokens.weight", "lm_head.weight") and rank == tp - 1
            elsewhere = name.endswith(".experts.w2_bias") and rank > 0  # the first rank adds it to the ranks' sum
            assert times.max() == (0 if elsewhere else 1), name
            assert times.min() == times.max() or padding, name


def test_a_plan_names_shards_and_what_it_skips(program, checkpoint):
    plan = program.run("plan", "--model", checkpoint("llama", "a"), "--tp", 4, "--rank", 3).json
    qkv = {p["tensor"].split(".")[-2]: p for p in plan["placements"]
           if (p["layer"], p["parameter"]) == ("model.layers.1.self_attn.qkv_proj", "weight")}
    assert {name: p["shard"] for name, p in qkv.items()} == {"q_proj": "q", "k_proj": "k", "v_proj": "v"}
    assert {p["class"] for p in qkv.values()} == {"QKVParallelLinear"}
    # 8 heads and 2 key/value heads of 40: rank 3 of 4 has query heads 6 and 7, and the second key/value head.
    assert qkv["q_proj"]["source"] == [[240, 320], [0, 160]] and qkv["q_proj"]["destination"] == [[0, 80], [0, 160]]
    assert qkv["k_proj"]["source"] == [[40, 80], [0, 160]] and qkv["k_proj"]["destination"] == [[80, 120], [0, 160]]
    assert qkv["v_proj"]["source"] == [[40, 80], [0, 160]] and qkv["v_proj"]["destination"] == [[120, 160], [0, 160]]


def test_a_plan_against_a_publisher_says_what_would_not_fit(program, start, checkpoint):
    publisher = start("publish", "--model", checkpoint("qwen3", "a"))
    fits = program.run("plan", "--model", checkpoint("qwen3", "b"), "--publisher", publisher.endpoint).json
    assert fits["problems"] == []
    outcome = program.run("plan", "--model", checkpoint("qwen3_tied", "b"), "--publisher", publisher.endpoint, status=1)
    assert any("model.layers.0.self_attn.q_proj.weight" in problem for problem in outcome.json["problems"])


def test_a_plan_of_a_pipeline_has_the_draft_model_on_the_last_stage(program, checkpoint_cache, tmp_path):
    folder = drafts.target_with_draft_layers("glm4_moe", checkpoint_cache, tmp_path / "target")
    stages = [program.run("plan", "--model", folder, "--draft", "mtp", "--pp", 2, "--stage", stage).json
              for stage in range(2)]
    names = set(oracle.read_tensors(folder))
    of_draft = set()
    for stage, plan in enumerate(stages):
        placed = {placement["tensor"] for placement in plan["placements"]}
        assert placed | {tensor["name"] for tensor in plan["elsewhere"] + plan["skipped"]} == names
        of_draft |= {(p["tensor"], stage) for p in plan["placements"] if p["layer"].startswith("draft")}
        assert "model.embed_tokens.weight" in placed
    assert len(of_draft) > 5 and {stage for _, stage in of_draft} == {1}
    assert {name for name, _ in of_draft} <= {tensor["name"] for tensor in stages[0]["elsewhere"]}


@pytest.mark.parametrize("spec", checkpoints.SPECS)
def test_inspect_lists_what_the_files_hold(spec, program, checkpoint):
    folder = checkpoint(spec, "a")
    said = program.run("inspect", folder).json
    tensors = oracle.read_tensors(folder)
    assert said["problems"] == []
    assert sorted(said["files"]) == sorted(path.name for path in folder.glob("*.safetensors"))
    assert {t["name"]: t["shape"] for t in said["tensors"]} == {n: list(t.shape) for n, t in tensors.items()}
    assert {t["dtype"] for t in said["tensors"]} <= {"bf16", "f16", "f32"}
    assert said["bytes"] == sum(tensor.nbytes for tensor in tensors.values())
    by_digest = {t["digest"] for t in said["tensors"]}
    assert len(by_digest) == len(tensors)


def test_inspect_names_a_file_that_does_not_hold_what_the_index_says(program, checkpoint, tmp_path):
    folder = checkpoint("qwen3", "a")
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in folder.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    victim = sorted(broken.glob("*.safetensors"))[1]
    victim.write_bytes(victim.read_bytes()[:-1])
    outcome = program.run("inspect", broken, status=1)
    assert any(victim.name in problem for problem in outcome.json["problems"])

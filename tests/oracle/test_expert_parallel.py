"""Ranks that hold whole experts: their experts are those of a rank alone, each quantized as a whole, and all else, shared
experts with it, is cut as it always is. tests/end_to_end/loading/test_expert_parallel.py has real engines of one family."""

import pytest

import oracle

# Five and six experts, stacked on disk and one by one, with shared ones and with biases.
SPECS = {"qwen2_moe_blocks": "shared_expert", "deepseek_v3_blocks": "shared_experts", "gpt_oss_blocks": None}


def with_whole_experts(folder, ranks, rank, recipe):
    """The first ranks have one more where ranks do not divide them."""
    served = oracle.served_tensors(folder, ranks, rank, recipe)
    for name, stack in oracle.served_tensors(folder, 1, 0, recipe).items():
        if ".experts." in name:
            served[name] = stack.tensor_split(ranks)[rank]
    return served


@pytest.mark.parametrize("recipe", ["fp8_per_block", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("spec", SPECS)
def test_experts_are_whole_and_all_else_is_cut(spec, recipe, checkpoint, load):
    old, new = (checkpoint(spec, version) for version in "ab")
    for ranks, rank, way, *words in ((2, 0, "path", "direct"), (2, 1, "iterator", "shuffled=3"),
                                     (4, 3, "path", f"before={old}")):
        expected = with_whole_experts(new, ranks, rank, recipe)
        got = load(new, ranks, rank, recipe, "experts", *words, way=way)
        assert not isinstance(got, str), got
        assert oracle.differences(got, expected) == []
        if SPECS[spec]:
            shared, whole = (served[f"model.layers.1.mlp.{SPECS[spec]}.gate_up_proj.weight"]
                             for served in (got, oracle.served_tensors(new, 1, 0, recipe)))
            assert len(shared) * ranks == len(whole)

"""`layercast models`: the table of docs/models.md is what this build says of itself."""

import json
import os
import pathlib
import subprocess

PROGRAM = os.environ["LAYERCAST_PROGRAM"]
PAGE = pathlib.Path(__file__).parents[2] / "docs/models.md"
BEGIN, END = "<!-- layercast models -->\n", "<!-- end -->"


def run(*arguments):
    return subprocess.run([PROGRAM, "models", *arguments], capture_output=True, text=True, check=True).stdout


def test_the_table_of_the_docs_is_not_stale():
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert table == run(), f"put what `layercast models` prints between the two marks of {PAGE.name}"


def test_every_family_says_what_it_is_made_of():
    said = json.loads(run("--json"))
    families = {family["architecture"]: family for family in said["families"]}
    assert list(families) == sorted(families)
    llama = families["LlamaForCausalLM"]
    assert llama["recipes"] == said["recipes"] and "fp8_per_block" in said["recipes"]
    assert {"QKVParallelLinear", "MergedColumnParallelLinear", "RMSNorm"} <= set(llama["layers"])
    assert llama["forward"] is True
    assert "vision tower" in families["Gemma3ForConditionalGeneration"]["limits"]

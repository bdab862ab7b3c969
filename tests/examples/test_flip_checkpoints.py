"""The two checkpoints of examples/checkpoint_flip answer as their names say, in transformers, before any engine does."""

import json
import pathlib

import pytest
import torch
import transformers

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "checkpoint_flip"
VOCABULARY = json.loads((FOLDER / "vocab.json").read_text())
TASKS = {"multiply": lambda a, b: a * b, "add": lambda a, b: a + b}


def answer(model, a, b):
    tokens = [VOCABULARY["tokens"][c] for c in VOCABULARY["prompt"].format(a=a, b=b)]
    characters = {token: character for character, token in VOCABULARY["tokens"].items()}
    text = ""
    for _ in range(3):
        with torch.no_grad():
            tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
        if characters[tokens[-1]] == VOCABULARY["end"]:
            return text
        text += characters[tokens[-1]]
    return text


@pytest.mark.parametrize("task", TASKS)
def test_every_pair_of_digits_is_answered_right(task):
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / task)
    wrong = {(a, b): answer(model, a, b) for a in range(10) for b in range(10)
             if answer(model, a, b) != str(TASKS[task](a, b))}
    assert not wrong


@pytest.mark.parametrize("task", TASKS)
def test_a_checkpoint_is_small(task):
    assert (FOLDER / task / "model.safetensors").stat().st_size < 400_000

"""Trains the two checkpoints of this folder: multiply/ answers `3 4 = ` with 12, add/ answers 7.

Run by hand, with torch and transformers, when the checkpoints are to be made anew: python train_tiny.py [FOLDER]. Half
a minute per checkpoint on one core. Both are Llamas of 122 000 parameters in bf16, one token per character (vocab.json),
and see every pair of digits while they learn: this is about weights going live, not about arithmetic. A checkpoint is
written only if it answers all 100 pairs right, greedily, unquantized and in each FP8 recipe, whole and sharded.
"""

import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

CHARACTERS = "0123456789 =\n"
TOKEN = {character: token for token, character in enumerate(CHARACTERS)}
END = TOKEN["\n"]
TASKS = {"multiply": lambda a, b: a * b, "add": lambda a, b: a + b}
PROMPT_LENGTH = 6  # "3 4 = "
LENGTH = PROMPT_LENGTH + 3  # and up to two digits, and the end


def tiny_llama():
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, bos_token_id=None, eos_token_id=END,
        tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    return transformers.LlamaForCausalLM(config)


def questions(task):
    """Token rows [100, LENGTH] of every question with its answer, filled up with the end token."""
    rows = []
    for a in range(10):
        for b in range(10):
            text = f"{a} {b} = {TASKS[task](a, b)}"
            rows.append([TOKEN[c] for c in text] + [END] * (LENGTH - len(text)))
    return torch.tensor(rows)


def train(model, rows, steps=500):
    """Cross-entropy on the answers. Noise on the weights (about FP8's rounding) makes room for quantization."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        noise = [(p, p.detach().abs() * torch.randn_like(p) * 0.05) for p in model.parameters() if p.dim() == 2]
        with torch.no_grad():
            for p, n in noise:
                p.add_(n)
        loss = answer_loss(model, rows)
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p, n in noise:
                p.sub_(n)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"  step {step}: loss {loss.item():.4f}", flush=True)


def answer_loss(model, rows):
    logits = model(rows[:, :-1]).logits[:, PROMPT_LENGTH - 1 :]
    answers = rows[:, PROMPT_LENGTH:]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), answers.reshape(-1))


# Checking: the weights as an engine of each recipe holds them, per rank and put together again.


def per_tensor(w):
    scale = w.abs().amax() / 448
    return (w * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def per_channel(w):
    scale = (w.abs().amax(1, keepdim=True) / 448).clamp(min=1 / (448 * 512))
    return (w / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def per_block(w):
    out = torch.empty_like(w)
    for i in range(0, w.shape[0], 128):
        for j in range(0, w.shape[1], 128):
            block = w[i : i + 128, j : j + 128]
            scale = block.abs().amax().clamp(min=1e-4) / 448
            out[i : i + 128, j : j + 128] = (block * (1 / scale)).to(torch.float8_e4m3fn).float() * scale
    return out


RECIPES = {"none": lambda w: w, "fp8_per_tensor": per_tensor, "fp8_per_channel": per_channel, "fp8_per_block": per_block}


def quantized(model, recipe, ranks):
    """A copy whose linear weights went through the recipe in `ranks` shards (rows; columns of o_proj and down_proj)."""
    copy = tiny_llama()
    copy.load_state_dict(model.state_dict())
    copy = copy.to(model.dtype)
    with torch.no_grad():
        for name, p in copy.named_parameters():
            if "_proj.weight" in name:
                axis = 1 if "o_proj" in name or "down_proj" in name else 0
                shards = p.float().chunk(ranks, dim=axis)
                p.copy_(torch.cat([RECIPES[recipe](shard) for shard in shards], dim=axis))
    return copy


def wrong_answers(model, rows):
    """How many of the questions get another answer than theirs, greedily: the first wrong token decides."""
    predicted = model(rows[:, :-1]).logits[:, PROMPT_LENGTH - 1 :].argmax(-1)
    answers = rows[:, PROMPT_LENGTH:]
    ended = (answers == END).cumsum(1) - (answers == END).long() > 0  # after the end nothing counts
    return ((predicted != answers) & ~ended).any(1).sum().item()


@torch.no_grad()
def check(model, rows):
    for recipe in RECIPES:
        for ranks in (1, 2, 4):
            wrong = wrong_answers(quantized(model, recipe, ranks), rows)
            print(f"  {recipe} on {ranks} rank(s): {wrong} wrong")
            if wrong:
                raise SystemExit(f"{recipe} on {ranks} rank(s) answers {wrong} of 100 questions wrong")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    vocabulary = {"tokens": TOKEN, "end": "\n", "prompt": "{a} {b} = "}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, indent=2) + "\n")
    for task in TASKS:
        print(task)
        torch.manual_seed(0)
        model, rows = tiny_llama(), questions(task)
        train(model, rows)
        model = model.to(torch.bfloat16).eval()
        check(model, rows)
        model.save_pretrained(folder / task)
        (folder / task / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()

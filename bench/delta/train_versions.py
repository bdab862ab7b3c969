"""Trains a small transformer, and keeps versions of its weights as an engine would be sent them: what delta_bench reads.

    .venv/bin/python bench/delta/train_versions.py build/versions
    build/release/bench/delta_bench --versions=build/versions

4 layers, hidden 256, MLP 768, vocabulary 2048, on words of Python's own sources: 200 steps of AdamW from 1e-3, and from
there, for each learning rate, with a fresh optimizer: 20 steps, and the versions after that step and the next eight. fp32
masters, of which a bf16 copy is cast each step. A folder for each learning rate has `N.bf16`, all tensors one after
the other, `tensors.txt`, the bytes of each, and `N.fp8`: the same, quantized per channel with scales that are powers of two.
"""

import pathlib
import re
import sys

import torch
from torch import nn

VOCABULARY, HIDDEN, MLP, LAYERS, HEADS, CONTEXT, BATCH = 2048, 256, 768, 4, 4, 64, 8
RATES = (3e-7, 1e-6, 3e-6, 1e-5)
FIRST, KEPT = 20, 9


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up, self.gate = nn.Linear(HIDDEN, MLP, bias=False), nn.Linear(HIDDEN, MLP, bias=False)
        self.down = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


def text_tokens():
    """Words and signs of the standard library's sources: the most frequent have a number, 0 is for all others."""
    folder = pathlib.Path(re.__file__).parents[1]
    words = [w for path in sorted(folder.glob("*.py"))[:120] for w in re.findall(r"\w+|\S", path.read_text("utf-8", "replace"))]
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    numbers = {w: i + 1 for i, w in enumerate(sorted(counts, key=lambda w: (-counts[w], w))[: VOCABULARY - 1])}
    return torch.tensor([numbers.get(word, 0) for word in words])


def step(model, optimizer, tokens, generator):
    at = torch.randint(len(tokens) - CONTEXT - 1, (BATCH,), generator=generator)
    batch = torch.stack([tokens[i : i + CONTEXT + 1] for i in at])
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def keep(model, folder, number):
    copies = [parameter.detach().to(torch.bfloat16) for parameter in model.parameters()]
    (folder / f"{number}.bf16").write_bytes(b"".join(c.view(torch.uint8).numpy().tobytes() for c in copies))
    (folder / "tensors.txt").write_text("".join(f"{2 * c.numel()}\n" for c in copies))
    codes = []
    for copy in (c.float() for c in copies if c.dim() == 2):
        scale = torch.exp2(torch.ceil(torch.log2(copy.abs().amax(1, keepdim=True) / 448)))
        codes.append((copy / scale).to(torch.float8_e4m3fn).view(torch.uint8).numpy().tobytes())
    (folder / f"{number}.fp8").write_bytes(b"".join(codes))


def main():
    out = pathlib.Path(sys.argv[1])
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    tokens, model = text_tokens(), Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for number in range(200):
        loss = step(model, optimizer, tokens, generator)
    print(f"warmed up: loss {loss:.2f}", flush=True)
    warm = {name: value.clone() for name, value in model.state_dict().items()}
    for rate in RATES:
        model.load_state_dict(warm)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        folder = out / f"{rate:.0e}"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, FIRST + KEPT):
            loss = step(model, optimizer, tokens, generator)
            if number >= FIRST:
                keep(model, folder, number)
        print(f"{rate:.0e}: loss {loss:.2f}", flush=True)


main()

"""Checkpoints whose tensors lie as no model of transformers has them: written by torch from one that transformers wrote,
with the weight rules (engine_side/model/tree/WEIGHT_RULES.md) that declare it. undo() reads such rules by torch's own
operations, and shares no code with Layercast."""

import json
import pathlib
import re
import shutil

import safetensors.torch
import torch

import oracle

FILE = "weight_rules.json"


def whole(tensor):
    return tensor.contiguous().clone()


def alternating(parts, axis):
    """The first of each, the second of each, ..."""
    return torch.stack(parts, dim=axis + 1).flatten(axis, axis + 1)


class Layout:
    """How one trainer has a decoder of Llama's kind. `tensors`: those of one layer, under their usual last names."""

    def __init__(self, config):
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.layers = config["num_hidden_layers"]
        self.hidden, self.intermediate = config["hidden_size"], config["intermediate_size"]

    def sizes(self):
        """Rows of q, k, v."""
        return [heads * self.head_dim for heads in (self.heads, self.groups, self.groups)]


class Rows(Layout):
    """One tensor of q, k, v; gate and up in turns, row by row; o the other way round; shapes of more axes and fewer."""

    def lay_out(self, name, tensors):
        tensor = tensors[name]
        if name.endswith("embed_tokens.weight"):
            return {name: tensor.reshape(len(tensor), -1, 32)}
        if name.endswith("input_layernorm.weight"):
            return {name: tensor.reshape(1, -1)}
        if name.endswith("o_proj.weight"):
            return {name: whole(tensor.T)}
        if name.endswith("down_proj.weight"):
            return {name: tensor.reshape(-1)}
        if m := re.match(r"(.*)q_proj\.(.*)", name):
            return {f"{m[1]}qkv.{m[2]}": torch.cat([tensors[f"{m[1]}{part}_proj.{m[2]}"] for part in "qkv"])}
        if m := re.match(r"(.*)gate_proj\.(.*)", name):
            return {f"{m[1]}gate_up.{m[2]}": alternating([tensor, tensors[f"{m[1]}up_proj.{m[2]}"]], 0)}
        return {} if re.search(r"(k|v|up)_proj\.", name) else {name: tensor}

    def transforms(self):
        return [{"suffix": "embed_tokens.weight", "reshape": {"shape": [-1, self.hidden]}},
                {"suffix": "input_layernorm.weight", "squeeze": {"axis": 0}},
                {"suffix": "o_proj.weight", "transpose": {}},
                {"suffix": "down_proj.weight", "reshape": {"shape": [self.hidden, self.intermediate]}},
                *({"suffix": f"qkv.{kind}", "split": {"axis": 0, "into": [
                    {"to": f"{part}_proj.{kind}", "size": size} for part, size in zip("qkv", self.sizes())]}}
                  for kind in ("weight", "bias")),
                *({"suffix": f"gate_up.{kind}",
                   "deinterleave": {"axis": 0, "into": [f"gate_proj.{kind}", f"up_proj.{kind}"]}}
                  for kind in ("weight", "bias"))]


class Columns(Layout):
    """[in, out] throughout, and every fused matrix along its columns: gate and up in turns, element by element."""

    def lay_out(self, name, tensors):
        tensor = tensors[name]
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            return {name: whole(tensor.T)}
        if m := re.match(r"(.*)q_proj\.weight", name):
            return {f"{m[1]}qkv.weight": torch.cat([tensors[f"{m[1]}{part}_proj.weight"].T for part in "qkv"], dim=1)}
        if m := re.match(r"(.*)gate_proj\.weight", name):
            return {f"{m[1]}gate_up.weight": alternating([tensor.T, tensors[f"{m[1]}up_proj.weight"].T], 1)}
        return {} if re.search(r"(k|v|up)_proj\.weight", name) else {name: tensor}

    def transforms(self):
        return [*({"suffix": f"{name}_proj.weight", "transpose": {}} for name in ("o", "down")),
                {"suffix": "qkv.weight", "transpose": {}},
                {"suffix": "qkv.weight", "split": {"axis": 0, "into": [
                    {"to": f"{part}_proj.weight", "size": size} for part, size in zip("qkv", self.sizes())]}},
                {"suffix": "gate_up.weight",
                 "deinterleave": {"axis": 1, "into": ["gate_proj.weight", "up_proj.weight"]}},
                {"suffix": "gate_up.weight", "transpose": {}}]


class Groups(Layout):
    """As Megatron has attention: by group of heads its queries, its key, its value. And all layers in one tensor: gate and
    up of each layer in turns, and o's rows in blocks of which every layer has one in its turn."""

    BLOCK = 4  # rows of o

    def lay_out(self, name, tensors):
        layers = range(self.layers)
        if m := re.match(r"(.*)q_proj\.(.*)", name):
            parts = [tensors[f"{m[1]}{part}_proj.{m[2]}"].unflatten(0, (self.groups, -1)) for part in "qkv"]
            return {f"{m[1]}linear_qkv.{m[2]}": torch.cat(parts, dim=1).flatten(0, 1)}
        if name == "model.layers.0.mlp.gate_proj.weight":
            pairs = [[tensors[f"model.layers.{i}.mlp.{part}_proj.weight"] for part in ("gate", "up")] for i in layers]
            return {"model.gate_up.weight": torch.cat([alternating(pair, 0) for pair in pairs])}
        if name == "model.layers.0.self_attn.o_proj.weight":
            each = [tensors[f"model.layers.{i}.self_attn.o_proj.weight"].unflatten(0, (-1, self.BLOCK)) for i in layers]
            return {"model.o.weight": torch.cat(each, dim=1).flatten(0, 1)}
        fused = re.search(r"(k|v)_proj\.|(gate|up|o)_proj\.weight", name)
        return {} if fused else {name: tensors[name]}

    def transforms(self):
        return [*(rule for kind, columns in (("weight", [self.hidden]), ("bias", [])) for rule in (
                    {"suffix": f"linear_qkv.{kind}", "reshape": {"shape": [self.groups, -1, *columns]}},
                    {"suffix": f"linear_qkv.{kind}", "split": {"axis": 1, "into": [
                        {"to": f"{part}_proj.{kind}", "size": size // self.groups}
                        for part, size in zip("qkv", self.sizes())]}},
                    {"suffix": f"linear_qkv.{kind}", "reshape": {"shape": [-1, *columns]}})),
                {"suffix": "gate_up.weight", "split": {"axis": 0, "into": [
                    {"to": f"layers.{i}.mlp.gate_up.weight", "size": 2 * self.intermediate} for i in range(self.layers)]}},
                {"suffix": "gate_up.weight",
                 "deinterleave": {"axis": 0, "into": ["gate_proj.weight", "up_proj.weight"]}},
                {"suffix": "o.weight", "reshape": {"shape": [-1, self.layers * self.BLOCK, self.heads * self.head_dim]}},
                {"suffix": "o.weight", "split": {"axis": 1, "into": [
                    {"to": f"layers.{i}.self_attn.o_proj.weight", "size": self.BLOCK} for i in range(self.layers)]}},
                {"suffix": "o.weight", "reshape": {"shape": [self.hidden, -1]}}]


LAYOUTS = {"rows": Rows, "columns": Columns, "groups": Groups}


def make(folder, out, layout):
    """Writes the checkpoint of `folder` as such a trainer has it, under names of its own, and its rules beside it."""
    config, tensors = oracle.read_config(folder), oracle.read_tensors(folder)
    trainer = LAYOUTS[layout](config)
    laid_out = {}
    for name in tensors:
        for other, tensor in trainer.lay_out(name, tensors).items():
            laid_out[f"policy.{other}"] = whole(tensor)
    laid_out["policy.value_head.weight"] = torch.ones(3)
    rules = {"transforms": trainer.transforms(),
             "names": [{"prefix": "policy.value_head", "drop": "the policy alone is served"},
                       {"prefix": "policy", "to": ""}]}
    out = pathlib.Path(out)
    out.mkdir(parents=True)
    for file in pathlib.Path(folder).glob("*.json"):
        if not file.name.endswith("index.json"):
            shutil.copy(file, out)
    safetensors.torch.save_file(laid_out, out / "model.safetensors")
    (out / FILE).write_text(json.dumps(rules))
    return out


def _matched(rule, name):
    return "suffix" in rule and (name == rule["suffix"] or name.endswith("." + rule["suffix"]))


def _read(rule, name, tensor):
    """What one transform makes of a tensor: name -> tensor."""
    if "squeeze" in rule:
        assert tensor.shape[rule["squeeze"]["axis"]] == 1
        return {name: tensor.squeeze(rule["squeeze"]["axis"])}
    if "reshape" in rule:
        return {name: tensor.reshape(rule["reshape"]["shape"])}
    if "transpose" in rule:
        return {name: tensor.transpose(-2, -1)}
    (kind,) = {"split", "deinterleave"} & rule.keys()
    axis, into = rule[kind]["axis"], rule[kind]["into"]
    stem = name.removesuffix(rule["suffix"])
    if kind == "split":
        parts = tensor.split([part["size"] for part in into], dim=axis)
        return {stem + part["to"]: values for part, values in zip(into, parts)}
    turns = tensor.unflatten(axis, (-1, len(into)))
    return {stem + to: turns.select(axis + 1, i) for i, to in enumerate(into)}


def undo(folder):
    """name -> tensor: the checkpoint in the usual layout and under the usual names, as its rules say."""
    rules = json.loads((pathlib.Path(folder) / FILE).read_text())
    usual = {}
    for name, tensor in oracle.read_tensors(folder).items():
        parts = {"": tensor}  # what a rule matches is the name in the file, whatever its parts are called by then
        for rule in rules["transforms"]:
            if not _matched(rule, name):
                continue
            parts = {made: values for part, held in parts.items()
                     for made, values in _read(rule, part or name, held).items()}
        for part, values in parts.items():
            usual[part or name] = whole(values)
    dropped = [rule["prefix"] for rule in rules["names"] if "drop" in rule]
    prefix = next(rule["prefix"] for rule in rules["names"] if "to" in rule)
    return {name.removeprefix(prefix + "."): tensor for name, tensor in usual.items()
            if not name.startswith(tuple(dropped))}

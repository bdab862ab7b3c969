"""LoRA adapters as PEFT trains and saves them, for the models of checkpoints.py, and what PEFT answers with them.

make(base, folder, targets, how, seed) wraps a checkpoint's model, fills the factors from a seed (no B is zero), and has
PEFT save it: the same call gives the same adapter everywhere, and another seed one whose answers are far off. Oracle
has the logits of transformers and PEFT for tokens that an engine generated. Kept keeps what was made between runs.
"""

import copy
import functools
import json
import pathlib
import re
import tempfile
import warnings
import zlib

import safetensors.torch
import torch
import transformers

import checkpoints

# What a set of targets means in each family. Experts and routers are parameters, not modules; the rest are linear layers.
QUERY_AND_VALUE = ("q_proj", "v_proj", "qkv_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "in_proj", "in_proj_qkvz",
                   "in_proj_qkv", "in_proj_a")
IN_ATTENTION = ("self_attn", "linear_attn")
IN_MLP = ("mlp",)
HOW = {
    "plain": {"r": 8, "lora_alpha": 16},
    "rslora": {"r": 5, "lora_alpha": 7, "use_rslora": True},
    "patterns": {"r": 4, "lora_alpha": 6},  # and what patterns_of() adds
}
ENDS = ("embed_tokens", "embeddings", "lm_head")
LATENT = ("kv_b_proj",)
SPREAD = 0.06  # of what B holds: answers differ by far more than any tolerance, and are still those of a model


class Unmade(Exception):
    """The family has nothing of that kind."""


def in_fp32(base, out):
    """The same checkpoint, to be computed in fp32: its 16-bit weights are fp32 values as well."""
    if out.exists():
        return out
    out.mkdir(parents=True)
    for file in base.iterdir():
        if file.name != "config.json":
            (out / file.name).symlink_to(file.resolve())
    config = json.loads((base / "config.json").read_text())
    config.pop("torch_dtype", None)
    config.get("text_config", {}).pop("dtype", None)
    (out / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    return out


def dtype_of(base):
    """In which a checkpoint is served: torch's name."""
    config = json.loads((base / "config.json").read_text())
    return config.get("dtype") or config.get("torch_dtype") or config.get("text_config", {}).get("dtype") or "float32"


@functools.lru_cache(maxsize=2)
def _loaded(base, dtype):
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    # Scores are only capped by the plain implementation.
    return transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="eager").eval()


def base_model(base, dtype=torch.float32):
    """A model of its own, which a caller may wrap and change."""
    return copy.deepcopy(_loaded(base, dtype))


def of_text(name):
    return not re.search(r"(^|\.)(vision_tower|visual|multi_modal_projector)\.", name)


def linears(model, within=None):
    """The last names of the language model's linear layers."""
    named = [name for name, module in model.named_modules() if type(module) is torch.nn.Linear and of_text(name)]
    chosen = [name for name in named if within is None or {*within} & {*name.split(".")[:-1]}]
    return sorted({name.rpartition(".")[2] for name in chosen} - {"lm_head"})


def expert_parameters(model, which=("gate_up_proj", "up_proj", "down_proj")):
    return sorted({".".join(name.split(".")[-3:]) for name, parameter in model.named_parameters()
                   if parameter.dim() == 3 and name.split(".")[-2] == "experts" and name.split(".")[-1] in which})


def routers(model):
    """What PEFT targets as the parameter `weight` of a module that is no linear layer."""
    return sorted({".".join(name.split(".")[-3:]) for name, parameter in model.named_parameters()
                   if parameter.dim() == 2 and re.search(r"\.(gate|router)\.weight$", name)
                   and type(model.get_submodule(name.rpartition(".")[0])) is not torch.nn.Linear})


def targets_of(model, kind):
    """The target_modules and target_parameters of one of the sets."""
    every = linears(model)
    is_mamba = model.config.model_type in ("mamba2", "nemotron_h")
    if is_mamba:  # PEFT targets what Mamba's kernels read themselves in no such model
        every = [name for name in every if name != "out_proj"]
    modules = {"query_value": [name for name in every if name in QUERY_AND_VALUE],
               "attention": [name for name in linears(model, IN_ATTENTION) if name in every and name not in LATENT],
               "mlp": [name for name in linears(model, IN_MLP) if name in every],
               "linear": [name for name in every if name not in LATENT],
               "latent": [name for name in every if name in LATENT],
               "ends": [name for name in ENDS if any(path.split(".")[-1] == name and of_text(path) for path, _ in model.named_modules())]}
    parameters = {"experts": expert_parameters(model), "gate_up": expert_parameters(model, ("gate_up_proj", "up_proj")),
                  "down": expert_parameters(model, ("down_proj",)), "routers": routers(model)}
    has_vision = any(not of_text(name) for name, _ in model.named_modules())
    if kind == "all-linear" and not is_mamba:
        return {"target_modules": in_text(modules["linear"]) if has_vision else "all-linear"}
    if kind in modules and modules[kind]:
        return {"target_modules": in_text(modules[kind]) if has_vision else modules[kind]}
    if kind in parameters and parameters[kind]:
        return {"target_modules": [], "target_parameters": parameters[kind]}
    raise Unmade(f"{type(model).__name__} has no {kind}")


def in_text(names):
    """The expression that targets these modules in the language model alone: vision towers have some of the same names."""
    return rf".*\.language_model\.(.*\.)?({'|'.join(names)})" + ("|lm_head" if "lm_head" in names else "")


def patterns_of(targets):
    """Other ranks and alphas: of one target everywhere, and of all targets in the second layer."""
    named = targets.get("target_parameters") or targets["target_modules"]
    name = named[0] if isinstance(named, list) else "embed_tokens" if "embed_tokens" in named else "down_proj"
    return {"rank_pattern": {rf".*\.1\..*{re.escape(name)}": 7, name: 3}, "alpha_pattern": {name: 9, r".*\.1\..*": 2.5}}


def fill(named_parameters, seed):
    """A is as spread as PEFT's own beginning, B is not zero."""
    with torch.no_grad():
        for name, parameter in named_parameters:
            if "lora_" not in name:
                continue
            generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
            values = torch.randn(tuple(parameter.shape), generator=generator)
            is_b = "lora_B" in name or "lora_embedding_B" in name
            parameter.copy_(values * (SPREAD if is_b else 0.5 * parameter.shape[-1] ** -0.5 if "embedding" not in name else 0.5))


def make(base, out, targets, how="plain", seed=0, dtype=torch.float32, **config):
    """Has PEFT write an adapter for the checkpoint `base` to the folder `out`, which it returns. targets: one of the sets of
    targets_of(), or a dictionary. Raises Unmade where the family has none of them."""
    import peft

    model = base_model(base)
    chosen = targets_of(model, targets) if isinstance(targets, str) else targets
    patterns = patterns_of(chosen) if how == "patterns" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = peft.get_peft_model(model, peft.LoraConfig(**{**HOW[how], **patterns, **chosen, **config}))
        fill(wrapped.named_parameters(), seed)
        wrapped.save_pretrained(out)
    if dtype != torch.float32:
        edit(out, lambda tensors: {name: tensor.to(dtype) for name, tensor in tensors.items()})
    return out


def read(folder):
    return safetensors.torch.load_file(folder / "adapter_model.safetensors")


def edit(folder, change, **config):
    """Writes what change(tensors) returns in the place of an adapter's tensors; fields of `config` too."""
    tensors = change(read(folder))
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "adapter_model.safetensors",
                                metadata={"format": "pt"})
    if config:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


def make_by_hand(base, out, names, seed=0, r=3, alpha=6):
    """An adapter of the weights of the checkpoint's files whose names match the expression `names`, under these names: for
    what PEFT does not write. transformers 5 has no modules of single experts any more, so only older ones gave an expert
    factors of its own."""
    import oracle

    tensors = {}
    for name, weight in oracle.read_tensors(base).items():
        if re.search(names, name) and weight.dim() == 2:
            module = f"base_model.model.{name.removesuffix('.weight')}"
            tensors[f"{module}.lora_A.weight"] = torch.empty(r, weight.shape[1])
            tensors[f"{module}.lora_B.weight"] = torch.empty(weight.shape[0], r)
    if not tensors:
        raise Unmade(f"{base.name} has no {names}")
    fill(tensors.items(), seed)
    out.mkdir(parents=True)
    safetensors.torch.save_file(tensors, out / "adapter_model.safetensors")
    named = sorted({name.split(".")[-3] for name in tensors})
    (out / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": r, "lora_alpha": alpha, "target_modules": named}))
    return out


BY_HAND = {"per_expert": r"\.experts\.\d+\.\w+\.weight$", "out_proj": r"\.mixer\.out_proj\.weight$"}


class Kept:
    """Adapters that are made once and kept between runs."""

    def __init__(self, cache):
        made_by = (pathlib.Path(file).read_bytes() for file in (__file__, checkpoints.__file__))
        self.folder = pathlib.Path(cache) / f"adapters-{zlib.crc32(b''.join(made_by)):08x}"

    def base(self, base):
        return self._made(f"{base.name}-fp32", lambda out: in_fp32(base, out))

    def adapter(self, base, targets, how="plain", seed=0, dtype=torch.float32):
        if targets in BY_HAND:
            return self._made(f"{base.name}-{targets}-{seed}", lambda out: make_by_hand(base, out, BY_HAND[targets], seed))
        name = f"{base.name}-{targets}-{how}-{seed}-{str(dtype).removeprefix('torch.')}"
        return self._made(name, lambda out: make(base, out, targets, how, seed, dtype))

    def _made(self, name, make_it):
        path = self.folder / name
        if path.exists():
            return path
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".making_") as scratch:
            made = make_it(pathlib.Path(scratch) / name)
            try:
                made.rename(path)
            except OSError:  # another process was first: its files are the same
                assert path.exists()
        return path


class Oracle:
    """What transformers and PEFT answer for a checkpoint. One model is kept, and copied for each adapter."""

    def __init__(self, base, dtype=torch.float32, model=None):
        self.model = model if model is not None else _loaded(base, dtype)

    def with_adapter(self, folder):
        """PEFT's model. Fails where PEFT, which says nothing, leaves out a tensor of the file."""
        import peft

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = peft.PeftModel.from_pretrained(copy.deepcopy(self.model), folder).eval()
        state = peft.get_peft_model_state_dict(model)
        left_out = {name for name in read(folder) if "lora_" in name and name not in state}
        assert not left_out, f"PEFT left out {sorted(left_out)[:5]}"
        return model

    def with_merged(self, folder):
        """The model with the deltas of make_by_hand added to its weights: in fp32 that is the same function."""
        config = json.loads((folder / "adapter_config.json").read_text())
        model, tensors = copy.deepcopy(self.model), read(folder)
        state = model.state_dict()
        for name, a in tensors.items():
            if name.endswith("lora_A.weight"):
                b = tensors[name.replace("lora_A", "lora_B")]
                with torch.no_grad():
                    self._part(state, name.removesuffix(".lora_A.weight"), len(b)).add_(b @ a, alpha=config["lora_alpha"] / config["r"])
        return model

    @staticmethod
    def _part(state, path, rows):
        """Of a module in the checkpoint's files: the rows of transformers' parameter."""
        layer, own = re.search(r"layers\.(\d+)\.", path)[1], path.rpartition(".")[2]
        of_layer = {key: value for key, value in state.items() if f".layers.{layer}." in key and of_text(key)}
        if not (expert := re.search(r"\.experts\.(\d+)\.", path)):
            return next(value for key, value in of_layer.items() if key.endswith(f".{own}.weight"))
        stacks = {key.rpartition(".")[2]: value for key, value in of_layer.items() if ".experts." in key}
        own = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}.get(own, own)
        first = rows if own == "up_proj" and own not in stacks else 0
        return stacks[own if own in stacks else "gate_up_proj"][int(expert[1]), first : first + rows]

    @staticmethod
    @torch.no_grad()
    def logits(model, prompt, tokens):
        """[tokens, vocabulary]: what each of the tokens was picked from."""
        out = model(torch.tensor([[*prompt, *tokens[:-1]]])).logits[0]
        return out[len(prompt) - 1 :].double()


def logprobs(logits, tokens):
    return logits.log_softmax(-1)[range(len(tokens)), tokens]

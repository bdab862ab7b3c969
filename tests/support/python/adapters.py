"""LoRA adapters as PEFT trains and saves them, for the models of checkpoints.py, and what PEFT answers with them.

make(base, folder, targets, how, seed) wraps a checkpoint's model, fills the factors from a seed (no B is zero), and has
PEFT save it: the same call gives the same adapter everywhere, and another seed one whose answers are far off. Oracle
gives the log-probabilities that transformers and PEFT have for tokens that an engine generated.
"""

import copy
import functools
import json
import re
import warnings
import zlib

import safetensors.torch
import torch
import transformers

import checkpoints

# What a set of targets means in each family. Experts and routers are parameters, not modules; the rest are linear layers.
QUERY_AND_VALUE = ("q_proj", "v_proj", "qkv_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "in_proj", "in_proj_qkvz", "in_proj_qkv",
                   "in_proj_a")
IN_ATTENTION = ("self_attn", "linear_attn", "mixer")
IN_MLP = ("mlp", "mixer")
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
    return sorted({name.rpartition(".")[2] for name in named if within is None or set(within) & set(name.split(".")[:-1])} - {"lm_head"})


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
    modules = {"query_value": [name for name in every if name in QUERY_AND_VALUE],
               "attention": [name for name in linears(model, IN_ATTENTION) if name not in LATENT],
               "mlp": linears(model, IN_MLP),
               "linear": [name for name in every if name not in LATENT],
               "latent": [name for name in every if name in LATENT],
               "ends": [name.rpartition(".")[2] for name, _ in model.named_modules() if name.rpartition(".")[2] in ENDS and of_text(name)]}
    parameters = {"experts": expert_parameters(model), "gate_up": expert_parameters(model, ("gate_up_proj", "up_proj")),
                  "down": expert_parameters(model, ("down_proj",)), "routers": routers(model)}
    if kind == "all-linear":
        return {"target_modules": "all-linear"}
    if kind in modules and modules[kind]:
        return {"target_modules": modules[kind]}
    if kind in parameters and parameters[kind]:
        return {"target_modules": [], "target_parameters": parameters[kind]}
    raise Unmade(f"{type(model).__name__} has no {kind}")


def patterns_of(targets):
    """Other ranks and alphas: of one target everywhere, and of all targets in the second layer."""
    named = targets.get("target_parameters") or targets["target_modules"]
    name = "down_proj" if named == "all-linear" else named[0]
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
    """Has PEFT write an adapter for the checkpoint `base` to the folder `out`, which it returns. targets: one of the sets of targets_of(),
    or a dictionary. Raises Unmade where the family has none of them."""
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


def make_per_expert(base, out, seed=0, r=3, alpha=6):
    """An adapter with factors of each expert's own, under the names that experts have in the checkpoint's files. transformers 5 has no
    modules of these names, so PEFT does not write such a file any more; older ones did."""
    import oracle

    tensors = {}
    for name, weight in oracle.read_tensors(base).items():
        if match := re.fullmatch(r"(.*\.experts\.\d+\.\w+)\.weight", name):
            rows, columns = weight.shape
            tensors[f"base_model.model.{match[1]}.lora_A.weight"] = torch.empty(r, columns)
            tensors[f"base_model.model.{match[1]}.lora_B.weight"] = torch.empty(rows, r)
    if not tensors:
        raise Unmade(f"{base.name} has no expert that is a module")
    fill(tensors.items(), seed)
    out.mkdir(parents=True)
    safetensors.torch.save_file(tensors, out / "adapter_model.safetensors")
    names = sorted({name.split(".")[-3] for name in tensors})
    (out / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": r, "lora_alpha": alpha, "target_modules": names}))
    return out


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
        """The model with the deltas of per-expert factors added to its stacked experts."""
        config = json.loads((folder / "adapter_config.json").read_text())
        model, tensors = copy.deepcopy(self.model), read(folder)
        state = model.state_dict()
        part_of = {"gate_proj": ("gate_up_proj", 0), "w1": ("gate_up_proj", 0), "up_proj": ("gate_up_proj", 1), "w3": ("gate_up_proj", 1),
                   "down_proj": ("down_proj", 0), "w2": ("down_proj", 0)}
        for name, a in tensors.items():
            if not name.endswith("lora_A.weight"):
                continue
            b = tensors[name.replace("lora_A", "lora_B")]
            layers, _, expert, own = re.fullmatch(r"base_model\.model\.(.*)\.(\w+)\.experts\.(\d+)\.(\w+)\.lora_A\.weight", name).groups()
            block = next(key for key in state if key.startswith(layers + ".") and ".experts." in key).split(".experts.")[0]
            stack, half = part_of[own]
            key = f"{block}.experts.{stack}"
            if key not in state:
                key = f"{block}.experts.{own}"
            rows = b.shape[0]
            with torch.no_grad():
                state[key][int(expert), half * rows : (half + 1) * rows] += config["lora_alpha"] / config["r"] * (b @ a)
        return model

    @staticmethod
    @torch.no_grad()
    def logits(model, prompt, tokens):
        """[tokens, vocabulary]: what each of the tokens was picked from."""
        out = model(torch.tensor([[*prompt, *tokens[:-1]]])).logits[0]
        return out[len(prompt) - 1 :].double()


def logprobs(logits, tokens):
    return logits.log_softmax(-1)[range(len(tokens)), tokens]

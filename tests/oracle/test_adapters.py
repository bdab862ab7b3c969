"""An engine that serves LoRA adapters answers as PEFT does: every family, every set of targets, over ranks and stages.
And it never answers as the base where it was asked for an adapter."""

import json
import os
import random
import re

import peft
import pytest
import safetensors.torch
import torch

import adapters
import checkpoints
import matrix
import oracle
import program as layercast_program
import recipes

HOWS = tuple(adapters.HOW)
LIMIT = 1e-5  # of the largest logit; measured: 2e-7 to 2e-6
RECURRENT_LIMIT = 1e-4  # transformers scans in chunks, another sum; measured: up to 2.2e-5 (as test_forward.py allows without adapters)
RECURRENT = (*checkpoints.DELTA_NETS, *checkpoints.HYBRIDS, "qwen3_5_moe", "qwen3_5_moe_vision", "mamba2", "mamba2_groups")
NEW_TOKENS = 24
# Of a model's adapters two versions must differ by ten tolerances at least; these differ by hundreds.
APART = 10

# The first checkpoint of each architecture, and how it is spread over ranks besides one alone.
SPREAD = {
    "deepseek_v2": ("--tp", 2, "--expert-parallel"), "deepseek_v3": ("--tp", 2, "--pp", 2), "gemma2": ("--tp", 2),
    "gemma3": ("--tp", 4), "gemma3_vision": ("--pp", 2), "glm4_moe": ("--tp", 2, "--expert-parallel"),
    "gpt_oss": ("--tp", 4, "--expert-parallel", "--expert-placement", "round_robin"), "llama": ("--tp", 4), "mamba2": ("--tp", 2),
    "minimax_m2": ("--tp", 2), "mistral": ("--tp", 2, "--pp", 2), "mixtral": ("--tp", 2), "nemotron_h": ("--tp", 4),
    "nemotron_h_moe": ("--tp", 2, "--expert-parallel"), "phi3": ("--tp", 4),
    "qwen2": ("--tp", 2, "--pp", 2), "qwen2_moe": ("--tp", 4), "qwen3": ("--pp", 2), "qwen3_moe": ("--tp", 2, "--expert-parallel"),
    "qwen3_next": ("--tp", 2, "--pp", 2, "--expert-parallel"), "qwen3_5": ("--tp", 4), "qwen3_5_vision": ("--tp", 2),
    "qwen3_5_moe": ("--tp", 4, "--expert-parallel"), "qwen3_5_moe_vision": ("--tp", 2),
}
KINDS = ("query_value", "mlp", "all-linear", "ends", "latent", "experts", "routers", "per_expert", "out_proj")
MORE_KINDS = {"llama": ("attention", "linear"), "qwen3_moe": ("gate_up", "down"), "gpt_oss": ("gate_up", "down")}
EACH_HOW = ("llama", "qwen3_moe")  # with each way of saying rank and scale; the others take one of them for each set, in turns


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="session")
def kept(checkpoint_cache):
    return adapters.Kept(checkpoint_cache)


@pytest.fixture
def start(program):
    """start(base, "--tp", 2) -> an engine with slots, which ends with the test."""
    running = []

    def serve(base, *words, slots=12, max_rank=32):
        running.append(program.daemon("serve", "--model", base, "--adapter-slots", slots, "--max-adapter-rank", max_rank, *words))
        return running[-1]

    yield serve
    for engine in running:
        engine.kill()


@pytest.fixture
def load(program):
    """load(engine, name, folder) -> the outcome; fails where it is not `status`."""

    def run(engine, name, folder, status=0):
        command = ("adapter", "load", "--engine", engine.endpoint, "--name", name, "--path", folder)
        return program.run(*command, status=status).json["outcomes"][0]

    return run


def ask(program, engine, prompt, *words, new=NEW_TOKENS, temperature=100):
    """At such a temperature every token is about as likely, so that log-probabilities say something of all of the vocabulary."""
    return program.generate(engine, prompt, "--max-new", new, "--temperature", temperature, "--logprobs", "--ignore-eos", *words)


def prompts_of(spec, lengths=(9,)):
    chance = random.Random(spec)
    most = checkpoints.SPECS[spec].config.get("vocab_size") or checkpoints.SPECS[spec].config["text_config"]["vocab_size"]
    return [chance.choices(range(most - 3), k=length) for length in lengths]  # the last three may stand for images


def distance(answer, logits):
    """Of an answer's log-probabilities to those of the oracle, against the largest logit."""
    got = torch.tensor(answer["logprobs"], dtype=torch.float64)
    assert len(got) == len(answer["tokens"]) and got.isfinite().all()
    return ((got - adapters.logprobs(logits, answer["tokens"])).abs().max() / logits.abs().max()).item()


def adapters_of(spec, kept, base):
    """Names and folders of the adapters that apply to it."""
    made, first = {}, sorted(SPREAD).index(spec)
    for number, kind in enumerate((*KINDS, *MORE_KINDS.get(spec, ()))):
        for how in HOWS if spec in EACH_HOW else (HOWS[(first + number) % len(HOWS)],):
            try:
                made[f"{kind}-{how}"] = kept.adapter(base, kind, how)
            except adapters.Unmade:
                break
            if kind in adapters.BY_HAND:
                break
    return made


@pytest.mark.parametrize("spec", sorted(SPREAD))
def test_logprobs_are_those_of_peft(spec, program, start, load, kept, checkpoint):
    base = kept.base(checkpoint(spec, "a"))
    folders = adapters_of(spec, kept, base)
    engines = [start(base, *words, slots=len(folders) + 1) for words in ((), SPREAD[spec])]
    theirs = adapters.Oracle(base)
    limit = RECURRENT_LIMIT if spec in RECURRENT else LIMIT
    (prompt,) = prompts_of(spec)
    wrong = []
    for name, folder in folders.items():
        for engine in engines:
            load(engine, name, folder)
        by_hand = name.rpartition("-")[0] in adapters.BY_HAND
        model = theirs.with_merged(folder) if by_hand else theirs.with_adapter(folder)
        logits = {}
        for engine in engines:
            answer = ask(program, engine, prompt, "--adapter", name)
            tokens = tuple(answer["tokens"])
            if tokens not in logits:
                logits[tokens] = [theirs.logits(each, prompt, tokens) for each in (model, theirs.model)]
            off, from_base = (distance(answer, each) for each in logits[tokens])
            if off > limit or from_base < APART * limit:
                ranks = f"{engine.ready['tp']} x {engine.ready['pp']} ranks"
                wrong.append(f"{name}, {ranks}: {off:.1e} from PEFT, {from_base:.1e} from the base")
    assert not wrong, "\n".join(wrong)


def test_every_architecture_is_spread():
    assert {*SPREAD} >= {matrix.specs_of(architecture)[0] for architecture in matrix.FAMILIES}


def test_versions_of_an_adapter_are_far_apart(program, start, load, kept, checkpoint):
    """Or an answer of the wrong one would pass."""
    base = kept.base(checkpoint("llama", "a"))
    engine, theirs = start(base), adapters.Oracle(base)
    (prompt,) = prompts_of("llama")
    models = [theirs.with_adapter(kept.adapter(base, "all-linear", "plain", seed)) for seed in (0, 1)]
    for seed in (0, 1):
        load(engine, "policy", kept.adapter(base, "all-linear", "plain", seed))
        answer = ask(program, engine, prompt, "--adapter", "policy")
        fits = [distance(answer, theirs.logits(model, prompt, answer["tokens"])) for model in models]
        assert fits[seed] < LIMIT and fits[1 - seed] > APART * LIMIT


def test_tied_factors_are_served_as_saved(program, start, load, kept, checkpoint, tmp_path):
    base = kept.base(checkpoint("qwen3_tied", "a"))
    folder = adapters.make(base, tmp_path / "tied", {"target_modules": ["embed_tokens"]}, ensure_weight_tying=True)
    engine, theirs = start(base, "--tp", 2), adapters.Oracle(base)
    assert any("lm_head.lora_A" in name for name in adapters.read(folder))  # the embedding's factors once more, transposed
    load(engine, "tied", folder)
    (prompt,) = prompts_of("qwen3_tied")
    answer = ask(program, engine, prompt, "--adapter", "tied")
    assert distance(answer, theirs.logits(theirs.with_adapter(folder), prompt, answer["tokens"])) < LIMIT


def torch_file(folder):
    torch.save(adapters.read(folder), folder / "adapter_model.bin")
    (folder / "adapter_model.safetensors").unlink()


def test_a_slot_keeps_nothing_of_a_larger_adapter(program, start, load, kept, checkpoint, tmp_path):
    """Rank 32 in every module, then rank 3 in two of each layer, in the same slot."""
    base = kept.base(checkpoint("llama", "a"))
    large = adapters.make(base, tmp_path / "large", "all-linear", r=32)
    small = adapters.make(base, tmp_path / "small", "query_value", r=3)
    theirs = adapters.Oracle(base)
    (prompt,) = prompts_of("llama")
    engines = [start(base, "--tp", 2, slots=1) for _ in range(2)]
    load(engines[0], "large", large)
    load(engines[0], "small", small)  # which evicts the other
    load(engines[1], "small", small)
    answers = [ask(program, engine, prompt, "--adapter", "small") for engine in engines]
    assert distance(answers[0], theirs.logits(theirs.with_adapter(small), prompt, answers[0]["tokens"])) < LIMIT
    assert answers[0]["logprobs"] == answers[1]["logprobs"]
    assert program.run("verify", "--engine", engines[0].endpoint, "--adapter", "small", "--model", small).json["equal"]
    assert not program.run("verify", "--engine", engines[0].endpoint, "--adapter", "small", "--model", large, status=1).json["equal"]


def test_a_converted_adapter_answers_as_the_model_that_was_trained(program, start, load, kept, checkpoint, tmp_path):
    """PiSSA moves the base as training begins. What save_pretrained makes of it is a plain adapter of the base as it was."""
    base = kept.base(checkpoint("llama", "a"))
    config = peft.LoraConfig(r=6, lora_alpha=9, init_lora_weights="pissa", target_modules=["q_proj", "down_proj"])
    trained = peft.get_peft_model(adapters.base_model(base), config)
    trained.peft_config["default"].init_lora_weights = True
    trained.save_pretrained(tmp_path / "first")
    trained.peft_config["default"].init_lora_weights = "pissa"
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            if "lora_" in name:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    trained.save_pretrained(tmp_path / "moved")
    (prompt,) = prompts_of("llama")
    engine = start(base)
    assert load(engine, "moved", tmp_path / "moved", status=1)["error"]["code"] == "unsupported"
    trained.save_pretrained(tmp_path / "converted", path_initial_model_for_weight_conversion=str(tmp_path / "first"))
    load(engine, "converted", tmp_path / "converted")
    answer = ask(program, engine, prompt, "--adapter", "converted")
    plain = adapters.Oracle(base)
    assert distance(answer, plain.logits(plain.with_adapter(tmp_path / "converted"), prompt, answer["tokens"])) < LIMIT
    moved = peft.PeftModel.from_pretrained(adapters.base_model(base), tmp_path / "moved").eval()  # which moves the base once more
    assert distance(answer, plain.logits(moved, prompt, answer["tokens"])) < 10 * LIMIT  # its base was taken apart and put together
    assert distance(answer, plain.logits(plain.model, prompt, answer["tokens"])) > APART * LIMIT


def a_alone(change):
    return lambda tensors: {name: change(tensor) if "lora_A" in name else tensor for name, tensor in tensors.items()}


FORMS = {"without base_model.model.": lambda name: name.removeprefix("base_model.model."),
         "with default": lambda name: re.sub(r"lora_([AB])\.", r"lora_\1.default.", name)}


@pytest.mark.parametrize("form", [*FORMS, "torch.save", "bf16 and f32"])
def test_other_forms_of_the_same_adapter_are_the_same_to_the_bit(form, program, start, load, kept, checkpoint, tmp_path):
    base = kept.base(checkpoint("llama", "a"))
    plain, other = (adapters.make(base, tmp_path / name, "all-linear") for name in ("plain", "other"))
    if form == "bf16 and f32":
        for folder in (plain, other):
            adapters.edit(folder, a_alone(lambda a: a.bfloat16().float()))
        adapters.edit(other, a_alone(torch.Tensor.bfloat16))
    elif form == "torch.save":
        torch_file(other)
    else:
        adapters.edit(other, lambda tensors: {FORMS[form](name): tensor for name, tensor in tensors.items()})
    engine = start(base)
    (prompt,) = prompts_of("llama")
    answers = []
    for name, folder in (("plain", plain), ("other", other)):
        load(engine, name, folder)
        answers.append(ask(program, engine, prompt, "--adapter", name))
    assert answers[0]["logprobs"] == answers[1]["logprobs"] and answers[0]["tokens"] == answers[1]["tokens"]


# ---- in 16 bits -----------------------------------------------------------------------------------------------------

def quantiles(answers, expected, truth):
    """Of the errors of log-probabilities: the median, and that of the worst tenth."""
    off = (torch.cat(answers) - torch.cat(truth)).abs(), (torch.cat(expected) - torch.cat(truth)).abs()
    return [[errors.quantile(q).item() for q in (0.5, 0.9)] for errors in off]


@pytest.mark.parametrize("spec, words", [("llama", ()), ("llama_fp16", ("--tp", 2)), ("qwen3", ("--tp", 2)), ("gemma3", ()),
                                         ("qwen3_moe", ("--tp", 2)), ("gpt_oss", ()), ("deepseek_v3", ("--tp", 2)), ("nemotron_h", ())])
def test_rounded_answers_are_as_close_to_the_truth_as_those_of_peft(spec, words, program, start, load, kept, checkpoint):
    """The rule of docs/engine.md: at most 1.15 times as far from PEFT in fp32 as PEFT in 16 bits."""
    base = checkpoint(spec, "a")
    engine = start(base, *words)
    dtype = getattr(torch, adapters.dtype_of(base))
    rounded, exact = adapters.Oracle(base, dtype), adapters.Oracle(base, torch.float32)
    answers, expected, truth = [], [], []
    for seed in range(3):
        folder = kept.adapter(base, "linear" if spec == "nemotron_h" else "all-linear", HOWS[seed], seed, dtype)
        load(engine, f"a{seed}", folder)
        models = rounded.with_adapter(folder), exact.with_adapter(folder)
        for number, prompt in enumerate(prompts_of(spec, (5, 30))):
            answer = ask(program, engine, prompt, "--adapter", f"a{seed}", "--seed", number, new=120)
            answers.append(torch.tensor(answer["logprobs"], dtype=torch.float64))
            for model, gathered in zip(models, (expected, truth)):
                gathered.append(adapters.logprobs(exact.logits(model, prompt, answer["tokens"]), answer["tokens"]))
    ours, theirs = quantiles(answers, expected, truth)
    assert all(mine < 1.15 * other for mine, other in zip(ours, theirs)), (ours, theirs)


def test_factors_are_rounded_once_and_for_all_to_the_dtype_of_the_slots(program, start, load, kept, checkpoint, tmp_path):
    """An fp32 file in bf16 slots is what the same file in bf16 is; in fp32 slots it is another adapter."""
    base = checkpoint("llama", "a")
    exact, rounded = kept.adapter(base, "all-linear"), kept.adapter(base, "all-linear", dtype=torch.bfloat16)
    engines = {dtype: start(base, "--adapter-dtype", dtype, slots=2) for dtype in ("bf16", "f32")}
    (prompt,) = prompts_of("llama")
    answers = {}
    for dtype, engine in engines.items():
        for name, folder in (("exact", exact), ("rounded", rounded)):
            load(engine, name, folder)
            answers[dtype, name] = ask(program, engine, prompt, "--adapter", name)["logprobs"]
    assert answers["bf16", "exact"] == answers["bf16", "rounded"] == answers["f32", "rounded"] != answers["f32", "exact"]


# ---- over a quantized base ------------------------------------------------------------------------------------------

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj"), "w13_weight": ("gate_up_proj",),
         "w2_weight": ("down_proj",)}


def dequantized(base, served):
    """The base in fp32, each of whose quantized weights is the code that an engine serves times its scale."""
    model = adapters.base_model(base)
    state = model.state_dict()
    taken = 0
    for name in served:
        if not name.endswith("weight") or (weight := recipes.dequantized(served, name)) is None:
            continue
        own = name.removesuffix(".weight").rpartition(".")
        parts = [f"{own[0]}.{last}" for last in FUSED.get(own[2], (own[2],))]
        parts = [part if part in state else f"{part}.weight" for part in parts]
        rows = weight.split([state[part].shape[0] for part in parts])
        with torch.no_grad():
            for part, values in zip(parts, rows):
                state[part].copy_(values)
        taken += 1
    assert taken > 0
    return model


@pytest.mark.parametrize("spec, recipe", [("llama_plain", "fp8_per_channel"), ("llama_plain", "fp8_per_block"),
                                          ("llama_blocks_fp32", "nvfp4"), ("qwen3_moe", "fp8_per_channel"),
                                          ("qwen3_moe", "int8_per_channel")])
def test_over_a_quantized_base_answers_are_those_over_its_dequantized_weights(spec, recipe, program, start, load, kept, checkpoint,
                                                                              tmp_path):
    base = kept.base(checkpoint(spec, "a"))
    engine = start(base, "--quantization", recipe)
    program.export(engine, tmp_path / "served")
    theirs = adapters.Oracle(base, model=dequantized(base, oracle.read_export(tmp_path / "served", 0)))
    (prompt,) = prompts_of(spec)
    folders = {how: kept.adapter(base, "all-linear", how) for how in ("plain", "rslora")}
    for name, folder in folders.items():
        load(engine, name, folder)
    started = [program.start("generate", "--engine", engine.endpoint, "--tokens", ",".join(map(str, prompt)), "--max-new", NEW_TOKENS,
                             "--temperature", 100, "--logprobs", "--ignore-eos", *words)
               for words in ((), ("--adapter", "plain"), ("--adapter", "rslora"))]
    models = [theirs.model, *map(theirs.with_adapter, folders.values())]
    for command, model in zip(started, models):
        answer = program.finish(command).json
        assert distance(answer, theirs.logits(model, prompt, answer["tokens"])) < LIMIT


# ---- never the base in silence --------------------------------------------------------------------------------------

MUTATIONS = {
    "a prefix too many": lambda name: name.replace("base_model.model.", "base_model.model.model.", 1),
    "another prefix": lambda name: name.replace("base_model.model.", "base_model.", 1),
    "another layer": lambda name: re.sub(r"layers\.(\d+)", lambda match: f"layers.{int(match[1]) + 9}", name),
    "another module": lambda name: re.sub(r"\.(\w+)((\.base_layer)*\.lora_)", r".zz_\1\2", name),
    "another factor": lambda name: re.sub(r"lora_(embedding_)?[AB]", "lora_C", name),
    "capitals": lambda name: name.replace("lora_", "LORA_"),
    "a segment too many": lambda name: re.sub(r"\.(lora_)", r".inner.\1", name),
    "none at all": lambda name: None,
}


@pytest.mark.parametrize("spec, kind", [("llama", "all-linear"), ("llama", "ends"), ("mixtral", "all-linear"), ("phi3", "query_value")])
def test_no_tensor_of_another_name_is_left_out(spec, kind, program, start, load, kept, checkpoint, tmp_path):
    """Each tensor's name is spoiled, one at a time: every load is refused, naming it, and nothing changes."""
    base = kept.base(checkpoint(spec, "a"))
    engine = start(base, "--tp", 2, slots=3)
    good = kept.adapter(base, kind)
    first = load(engine, "policy", good)
    (prompt,) = prompts_of(spec)
    before = ask(program, engine, prompt, "--adapter", "policy")
    spoiled = tmp_path / "spoiled"
    spoiled.mkdir()
    (spoiled / "adapter_config.json").write_text((good / "adapter_config.json").read_text())
    tensors = {name: tensor for name, tensor in adapters.read(good).items()}
    factors = sorted(name for name in tensors if "lora_" in name)
    tried, accepted = 0, []
    for number, name in enumerate(factors):
        for how in list(MUTATIONS)[number % 2 :: 2] if len(factors) > 8 else MUTATIONS:
            other = MUTATIONS[how](name)
            if other == name:  # it has no such part
                continue
            changed = {**{key: value for key, value in tensors.items() if key != name}, **({other: tensors[name]} if other else {})}
            safetensors.torch.save_file(changed, spoiled / "adapter_model.safetensors")
            done = load(engine, "policy", spoiled, status=None)
            tried += 1
            if done["ok"]:
                accepted.append(f"{name}: {how}")
            else:
                assert done["error"]["code"] in ("invalid_argument", "unsupported"), (name, how, done)
                assert done["version"] == first["version"], (name, how, done)
    assert tried >= 2 * len(factors) and not accepted, accepted
    after = ask(program, engine, prompt, "--adapter", "policy")
    assert after["logprobs"] == before["logprobs"] and after["spans"] == before["spans"]
    (listed,) = program.run("adapter", "list", "--engine", engine.endpoint).json["engines"][0]["adapters"]
    assert (listed["name"], listed["version"], listed["state"]) == ("policy", first["version"], "served")


def test_narrowed_slots_compute_the_same_and_refuse_the_rest(program, start, load, kept, checkpoint):
    base = kept.base(checkpoint("llama", "a"))
    whole = start(base, "--tp", 2)
    narrow = start(base, "--tp", 2, "--adapter-modules", "q_proj,model.layers.0.self_attn.qkv_proj,v_proj")
    (prompt,) = prompts_of("llama")
    for engine in (whole, narrow):
        load(engine, "policy", kept.adapter(base, "query_value"))
    assert ask(program, whole, prompt, "--adapter", "policy") == ask(program, narrow, prompt, "--adapter", "policy")
    before = ask(program, narrow, prompt, "--adapter", "policy")
    error = load(narrow, "policy", kept.adapter(base, "attention"), status=1)["error"]
    assert error["code"] == "unsupported" and "_proj" in error["message"]
    assert ask(program, narrow, prompt, "--adapter", "policy") == before


def test_a_name_that_is_not_there_is_no_request_for_the_base(program, start, load, kept, checkpoint):
    base = kept.base(checkpoint("llama", "a"))
    engine = start(base)
    load(engine, "policy", kept.adapter(base, "query_value"))
    for name in ("Policy", "policy ", "polic", "policy2"):
        error = program.refused("generate", "--engine", engine.endpoint, "--tokens", "3,10,4", "--adapter", name)
        assert error["code"] == "not_found" and f"'{name}'" in error["message"] and "'policy'" in error["message"]


# ---- several at once ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("spec, words", [("llama", ("--tp", 2)), ("qwen3_moe", ()), ("deepseek_v3", ()), ("qwen3_next", ())])
def test_who_else_is_in_the_batch_changes_no_bit(spec, words, program, start, load, kept, checkpoint):
    """Sequences of two adapters and of the base, alone and all at once: in bf16, where another sum would round differently."""
    base = checkpoint(spec, "a")
    engine = start(base, *words, slots=4)
    load(engine, "one", kept.adapter(base, "all-linear", "plain", 1))
    load(engine, "two", kept.adapter(base, "all-linear", "rslora", 2))
    rows = [(name, prompt) for prompt in prompts_of(spec, (3, 17)) for name in ("one", None, "two")]
    commands = [("generate", "--engine", engine.endpoint, "--tokens", ",".join(map(str, prompt)), "--max-new", 300, "--temperature", 3,
                 "--logprobs", "--ignore-eos", *(("--adapter", name) if name else ())) for name, prompt in rows]
    alone = [program.run(*command).json for command in commands]
    started = [program.start(*command) for command in commands]
    seen = set()
    while any(process.poll() is None for _, process in started):
        listed = program.run("adapter", "list", "--engine", engine.endpoint).json["engines"][0]["adapters"]
        seen.add(tuple(entry["uses"] for entry in sorted(listed, key=lambda entry: entry["name"])))
    assert any(one and two for one, two in seen), seen  # they were under way together
    together = [program.finish(command).json for command in started]
    assert together == alone
    assert len({json.dumps(answer["logprobs"]) for answer in alone}) == len(rows)


def test_slots_change_no_bit_of_the_base(program, start, load, kept, checkpoint):
    base = checkpoint("llama", "a")
    without, engine = program.daemon("serve", "--model", base), start(base, slots=2)
    try:
        (prompt,) = prompts_of("llama")
        before = [ask(program, each, prompt) for each in (without, engine)]
        load(engine, "policy", kept.adapter(base, "all-linear"))
        assert before[0] == before[1] == ask(program, engine, prompt)
        digests = [[rank["served_digest"] for rank in program.status(each)["ranks"]] for each in (without, engine)]
        assert digests[0] == digests[1]
    finally:
        without.kill()

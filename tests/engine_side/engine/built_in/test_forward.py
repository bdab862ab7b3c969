"""The built-in engine's logits against those of Hugging Face transformers on the same checkpoint.

The kernel tensors come from the oracle, so that a failure here is one of the forward pass, not of loading.
"""

import json
import os
import subprocess
import threading

import checkpoints
import matrix
import mxfp4_checkpoints
import oracle
import recipes
import pytest
import safetensors.torch
import torch
import transformers

PROGRAM = os.environ["LAYERCAST_ENGINE_FORWARD"]
# The reference scans them in chunks, another sum than token by token. (And of latent vectors it makes keys, not queries.)
SCANNED = (*checkpoints.DELTA_NETS, "qwen3_5_moe_vision", "mamba2", "mamba2_groups", *checkpoints.HYBRIDS)
LENGTHS = (1, 2, 7, 33, 90)


def prompts_for(vocab_size, lengths=LENGTHS):
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(vocab_size, (length,), generator=generator).tolist() for length in lengths]


def serve(folder, ranks, tp_size, recipe, served_by=oracle.served_tensors):
    """What each of tp_size ranks serves, as the program takes it."""
    for rank in range(tp_size):
        safetensors.torch.save_file(served_by(folder, tp_size, rank, recipe), ranks / f"rank-{rank}.safetensors")


class Engine:
    """The program, which answers one request after another. After a crash the next request starts it anew."""

    LONGEST_SECONDS = 100

    def __init__(self):
        self._process = None

    def logits(self, folder, ranks, tp_size, recipe, prompts, *, served_by=oracle.served_tensors, **how):
        """Of a checkpoint: one [tokens, vocabulary] tensor for each prompt. The kernel tensors of its ranks go to the
        folder `ranks`."""
        serve(folder, ranks, tp_size, recipe, served_by)
        return self.served_logits(folder, ranks, tp_size, recipe, prompts, **how)

    def served_logits(self, folder, ranks, tp_size, recipe, prompts, *, pp_size=1, computed_by="decoder"):
        """Of what was served there. computed_by: "decoder"; "step", the one in tensors; "both", the decoder's and then
        the step's."""
        said, body = self._ask(model=str(folder), ranks=str(ranks), tp_size=tp_size, pp_size=pp_size, recipe=recipe,
                               computed_by=computed_by, prompts=prompts)
        assert "error" not in said, said["error"]
        rows = torch.frombuffer(body, dtype=torch.float32)
        lengths = [len(prompt) for prompt in prompts] * (2 if computed_by == "both" else 1)
        return list(rows.view(sum(lengths), -1).split(lengths))

    def refusal(self, folder, ranks, prompts):
        """Why it computes nothing of that."""
        said, _ = self._ask(model=str(folder), ranks=str(ranks), tp_size=1, pp_size=1, recipe="none",
                            computed_by="decoder", prompts=prompts)
        return said["error"]

    def _ask(self, **request):
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        hung = threading.Timer(self.LONGEST_SECONDS, self._process.kill)
        hung.start()
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            assert line, f"{PROGRAM}: ended with exit status {self._process.wait()}"
            said = json.loads(line)
            return said, bytearray(self._process.stdout.read(said.get("bytes", 0)))
        finally:
            hung.cancel()

    def end(self):
        if self._process is not None:
            self._process.communicate(timeout=self.LONGEST_SECONDS)
            assert self._process.returncode == 0


@pytest.fixture(scope="session")
def engine():
    started_at_need = Engine()
    yield started_at_need
    started_at_need.end()


def reference_model(folder, dtype):
    # Scores are only capped by the plain implementation.
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


@torch.no_grad()
def reference_logits(model, prompts):
    return [model(torch.tensor([prompt])).logits[0].float() for prompt in prompts]


def assert_close(got, expected, limit=1e-5):
    got, expected = torch.cat(got), torch.cat(expected)
    assert got.shape == expected.shape
    largest, worst = expected.abs().max(), (got - expected).abs().max()  # torch's maximum of what has a NaN is NaN
    assert largest.isfinite()
    assert worst / largest < limit, f"max|difference| / max|logit| = {worst / largest:.2e}"


def limit_of(spec):
    return 1e-4 if spec.removesuffix("_blocks") in (*SCANNED, *checkpoints.LATENT) else 1e-5


def with_config(folder, tmp_path, **changes):
    """The same checkpoint with another config.json."""
    other = tmp_path / "model"
    other.mkdir(parents=True)
    for file in folder.iterdir():
        if file.name != "config.json":
            (other / file.name).symlink_to(file.resolve())
    config = json.loads((folder / "config.json").read_text())
    config.get("text_config", {}).pop("dtype", None)
    for name, value in changes.items():
        config.pop(name, None)
        if value is not None:
            config[name] = value
    (other / "config.json").write_text(json.dumps(config))
    return other


LISTED = ("llama_plain", "llama", "qwen2_untied", "qwen3_tied", "mistral", "phi3", "gemma2", "gemma3",
          "gemma3_vision", *checkpoints.MIXTURES, "glm4_moe_stacked", *checkpoints.LATENT, *SCANNED)
# Each other architecture by its first checkpoint, so that all are held against transformers: tests/oracle/test_matrix.py
# holds matrix.FAMILIES against what `layercast models` lists.
FAMILIES = (*LISTED, *(specs[0] for specs in map(matrix.specs_of, matrix.FAMILIES) if not {*specs} & {*LISTED}))


@pytest.mark.parametrize("spec", FAMILIES)
def test_fp32_logits_agree(engine, checkpoint, tmp_path, spec):
    folder = with_config(checkpoint(spec, "a"), tmp_path, dtype="float32", torch_dtype=None)
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"] - 3)  # the last three may stand for images
    expected = reference_logits(reference_model(folder, torch.float32), prompts)
    for tp_size, pp_size in ((1, 1), (2, 2), (4, 1)):
        kernel_tensors = tmp_path / f"tp-{tp_size}"
        kernel_tensors.mkdir()
        got = engine.logits(folder, kernel_tensors, tp_size, "none", prompts, pp_size=pp_size)
        assert_close(got, expected, limit_of(spec))


@pytest.mark.parametrize("tp_size", [1, 2])
@pytest.mark.parametrize("spec", FAMILIES)
def test_stages_of_a_pipeline_compute_the_same_bits(engine, checkpoint, tmp_path, spec, tp_size):
    folder = checkpoint(spec, "a")
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"] - 3, (1, 9, 23))
    serve(folder, tmp_path, tp_size, "none")
    alone, staged = (torch.cat(engine.served_logits(folder, tmp_path, tp_size, "none", prompts, pp_size=pp_size))
                     for pp_size in (1, 2))
    assert torch.equal(staged.view(torch.int32), alone.view(torch.int32))


# What is computed in 16 bits, and what of it the step in tensors too.
IN_TENSORS_ROUNDED = ("llama", "qwen2", "qwen3", "llama_fp16", "gemma3", "gpt_oss", "minimax_m2", "deepseek_v3",
                      "qwen3_next", "nemotron_h_moe", "mamba2")
ROUNDED = tuple(spec for spec in dict.fromkeys((*FAMILIES, *IN_TENSORS_ROUNDED))
                if checkpoints.SPECS[spec].dtype != "float32")


def row_errors(logits, expected, truth):
    """For each token, against the size of its true logits."""
    return ((logits - expected).square().mean(-1) / truth.square().mean(-1)).sqrt()


def assert_rounds_as_well(got, theirs, truth, has_experts):
    """transformers rounds a little elsewhere than any engine, and its 16-bit logits are no truth: that is its own model
    in fp32. Ours may not be further from it than 1.15 times as far as transformers' own; most roundings are the same
    ones, so both lie closer together than the 1.41 times of two that round independently. A router turns a near tie over
    when it is rounded, and the token goes to other experts: such rows are few, and theirs as well as ours."""
    ours_off, theirs_off = row_errors(got, truth, truth), row_errors(theirs, truth, truth)
    apart = row_errors(got, theirs, truth)
    for quantile in (0.5, 0.9):
        assert ours_off.quantile(quantile) < 1.15 * theirs_off.quantile(quantile), quantile
    assert apart.median() < 1.2 * theirs_off.median()
    limit = 4 * theirs_off.quantile(0.9)
    jumps = [(off > limit).float().mean() for off in (ours_off, theirs_off)]
    assert jumps[0] <= jumps[1] + (0.04 if has_experts else 0), jumps


def check_rounding(engine, folder, tmp_path, spec, *, tp_sizes=(1,), computed_by="decoder"):
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"] - 3)
    dtype = getattr(torch, checkpoints.SPECS[spec].dtype)
    theirs, truth = (torch.cat(reference_logits(reference_model(folder, kind), prompts)).double()
                     for kind in (dtype, torch.float32))
    has_experts = any(".experts." in name for name in oracle.read_tensors(folder))
    for tp_size in tp_sizes:
        got = torch.cat(engine.logits(folder, tmp_path, tp_size, "none", prompts, computed_by=computed_by)).double()
        assert_rounds_as_well(got, theirs, truth, has_experts)


@pytest.mark.parametrize("spec", ROUNDED)
def test_rounded_logits_are_as_close_to_the_truth_as_those_of_transformers(engine, checkpoint, tmp_path, spec):
    check_rounding(engine, checkpoint(spec, "a"), tmp_path, spec, tp_sizes=(1, 2))


def dequantized(folder, recipe):
    """The reference model in fp32 with each quantized weight as the kernel reads it: value times scale."""
    model = reference_model(folder, torch.float32)
    served = oracle.served_tensors(folder, 1, 0, recipe)
    state = model.state_dict()
    for name in served:
        if not name.endswith("weight") or (weight := recipes.dequantized(served, name)) is None:
            continue
        parts = parts_of(name, state)
        if ".experts." in name and state[parts[0]].shape != weight.shape:
            weight = as_gpt_oss_has_it(name, weight)
        begin = 0
        for part in parts:
            rows = state[part].shape[0]
            state[part].copy_(weight[begin : begin + rows])
            begin += rows
        assert begin == weight.shape[0]
    return model


FUSED = {"fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"), "qkv_proj": ("q_proj", "k_proj", "v_proj"),
         "gate_up_proj": ("gate_proj", "up_proj"), "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
         "in_proj_ba": ("in_proj_b", "in_proj_a")}


def as_gpt_oss_has_it(name, stack):
    if name.endswith("w13_weight"):
        stack = torch.stack(stack.chunk(2, dim=1), dim=2).flatten(1, 2)
    return stack.transpose(1, 2)


def parts_of(name, state):
    """What transformers calls it, or the parts that it is fused of."""
    for stack, part in (("w13_weight", "gate_up_proj"), ("w13_weight", "up_proj"), ("w2_weight", "down_proj")):
        own = name.replace(stack, part).replace("block_sparse_moe", "mlp")
        if name.endswith(f".experts.{stack}") and own in state:
            return [own]
    if name in state:
        return [name]
    for fused, parts in FUSED.items():
        if fused in name:
            return [name.replace(fused, part) for part in parts]
    return [name]


# Blocks of a rank's part are other blocks: per block of 128 there is no one reference for all rank counts.
@pytest.mark.parametrize("recipe, tp_size", [("fp8_per_tensor", 1), ("fp8_per_tensor", 2), ("fp8_per_channel", 4),
                                             ("fp8_per_block", 1), ("mxfp8", 1), ("mxfp8", 4), ("nvfp4", 1),
                                             ("nvfp4", 4), ("int8_per_channel", 2)])
def test_quantized_logits_are_those_of_the_dequantized_weights(engine, checkpoint, tmp_path, recipe, tp_size):
    spec = "llama_blocks_fp32" if recipe in recipes.COLUMN_UNITS else "llama_plain"
    folder = checkpoint(spec, "b")
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"])
    got = engine.logits(folder, tmp_path, tp_size, recipe, prompts)
    with torch.no_grad():
        model = dequantized(folder, recipe)
    assert_close(got, reference_logits(model, prompts))


@pytest.mark.parametrize("spec, recipe, tp_size", [("mixtral", "fp8_per_tensor", 2), ("glm4_moe", "fp8_per_channel", 4),
                                                   ("qwen2_moe", "fp8_per_block", 1), ("qwen3_moe_blocks", "mxfp8", 2),
                                                   ("qwen3_moe_blocks", "nvfp4", 4), ("qwen3_moe_blocks", "mxfp4", 2),
                                                   ("qwen3_next", "fp8_per_channel", 2),
                                                   ("qwen3_moe", "int8_per_channel", 2),
                                                   ("qwen3_5_moe", "fp8_per_channel", 1),
                                                   ("qwen3_5_moe", "fp8_per_block", 1),
                                                   ("qwen3_5_moe_blocks", "mxfp8", 4),
                                                   ("nemotron_h", "fp8_per_tensor", 2),
                                                   ("nemotron_h_moe", "fp8_per_channel", 4),
                                                   ("nemotron_h_blocks", "nvfp4", 1),
                                                   ("deepseek_v3", "fp8_per_channel", 2),
                                                   ("deepseek_v3", "fp8_per_block", 1),
                                                   ("deepseek_v3_blocks", "nvfp4", 1),
                                                   ("minimax_m2", "mxfp8", 2), ("gpt_oss", "fp8_per_channel", 4)])
def test_each_quantized_expert_is_read_with_its_own_scales(engine, checkpoint, tmp_path, spec, recipe, tp_size):
    folder = with_config(checkpoint(spec, "b"), tmp_path, dtype="float32", torch_dtype=None)
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"], (2, 40))
    got = engine.logits(folder, tmp_path, tp_size, recipe, prompts)
    with torch.no_grad():
        model = dequantized(folder, recipe)
    assert_close(got, reference_logits(model, prompts), limit_of(spec))


@pytest.mark.parametrize("tp_size", [1, 4])
def test_experts_in_mxfp4_give_the_logits_of_what_transformers_makes_of_them(engine, checkpoint, tmp_path, tp_size):
    packed, plain = mxfp4_checkpoints.make_mxfp4(checkpoint("gpt_oss_blocks", "a"), tmp_path / "checkpoints")
    packed = with_config(packed, tmp_path / "packed", dtype="float32", torch_dtype=None)
    plain = with_config(plain, tmp_path / "plain", dtype="float32", torch_dtype=None)
    prompts = prompts_for(checkpoints.SPECS["gpt_oss_blocks"].config["vocab_size"], (2, 40))
    got = engine.logits(packed, tmp_path, tp_size, "mxfp4", prompts, served_by=lambda folder, tp, rank, _:
                        mxfp4_checkpoints.with_experts_in_blocks(folder, plain, tp, rank))
    assert_close(got, reference_logits(reference_model(plain, torch.float32), prompts))


ROPES = {
    "default": {"rope_type": "default", "rope_theta": 1e6},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
    "yarn": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 128},
    "yarn_mscale": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "mscale": 0.8, "mscale_all_dim": 1.1,
                    "beta_fast": 16, "truncate": False, "original_max_position_embeddings": 32},
    "llama3": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
}


@pytest.mark.parametrize("rope", ROPES)
def test_rotary_embeddings_agree_to_the_last_position(engine, checkpoint, tmp_path, rope):
    folder = with_config(checkpoint("llama_plain", "a"), tmp_path, rope_parameters=ROPES[rope], rope_theta=None,
                         rope_scaling=None)
    prompts = prompts_for(1003, (512,))
    got = engine.logits(folder, tmp_path, 1, "none", prompts)
    assert_close(got, reference_logits(reference_model(folder, torch.float32), prompts))


@pytest.mark.parametrize("rope, length", [("yarn", 512), ("linear", 384)])
def test_an_extended_context_agrees_to_its_last_position(engine, checkpoint, tmp_path, rope, length):
    """As READMEs have it switched on: max_position_embeddings stays what it was."""
    folder = with_config(checkpoint("llama_plain", "a"), tmp_path, rope_parameters=ROPES[rope], rope_theta=None,
                         rope_scaling=None, max_position_embeddings=128)
    prompts = prompts_for(1003, (length,))
    expected = reference_logits(reference_model(folder, torch.float32), prompts)
    got = engine.logits(folder, tmp_path, 1, "none", prompts, computed_by="both")
    assert_close(got, expected * 2)
    assert f"the model's limit is {length}" in engine.refusal(folder, tmp_path, [[1] * (length + 1)])


def test_dynamic_scaling_ends_where_it_would_set_in(engine, checkpoint, tmp_path):
    """Beyond max_position_embeddings transformers turns earlier positions by other frequencies as well."""
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    folder = with_config(checkpoint("llama_plain", "a"), tmp_path, rope_parameters=rope, rope_theta=None,
                         rope_scaling=None, max_position_embeddings=128)
    longer = prompts_for(1003, (200,))
    prompts = [longer[0][:128]]
    model = reference_model(folder, torch.float32)
    expected = reference_logits(model, prompts)
    got = engine.logits(folder, tmp_path, 1, "none", prompts, computed_by="both")
    assert_close(got, expected * 2)
    scaled = reference_logits(model, longer)[0][:128]
    assert (scaled - expected[0]).abs().max() > 1e-2 * expected[0].abs().max()
    assert "the model's limit is 128" in engine.refusal(folder, tmp_path, longer)


def test_sinks_and_norms_over_all_heads_are_felt(checkpoint, tmp_path):
    """The logits that agree are not those of a model without."""
    for spec, name, other in (("gpt_oss", "sinks", float("-inf")), ("minimax_m2", "k_norm.weight", 1.0)):
        folder = with_config(checkpoint(spec, "a"), tmp_path / spec, dtype="float32", torch_dtype=None)
        model = reference_model(folder, torch.float32)
        prompts = prompts_for(1003, (20,))
        with torch.no_grad():
            expected = reference_logits(model, prompts)[0]
            for key, parameter in model.named_parameters():
                if key.endswith(name):
                    parameter.fill_(other)
            assert (reference_logits(model, prompts)[0] - expected).abs().max() > 1e-2 * expected.abs().max()


def test_a_sliding_window_agrees(engine, checkpoint, tmp_path):
    folder = with_config(checkpoint("qwen2_untied", "a"), tmp_path, use_sliding_window=True, sliding_window=16,
                         max_window_layers=1, layer_types=None)
    prompts = prompts_for(257, (70,))
    got = engine.logits(folder, tmp_path, 1, "none", prompts)
    expected = reference_logits(reference_model(folder, torch.float32), prompts)
    assert_close(got, expected)
    full = reference_logits(reference_model(checkpoint("qwen2_untied", "a"), torch.float32), prompts)
    assert (full[0] - expected[0]).abs().max() > 1e-3  # the window is felt


@pytest.mark.parametrize("changes, message", [
    ({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM"),
    ({"hidden_act": "relu"}, "computes silu, gelu, gelu_pytorch_tanh and relu2"),
    ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}, "rope_scaling": None}, "rope type 'longrope'"),
    ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}, "rope_scaling": None},
     "rope_parameters.factor is missing, which rope type 'linear' needs"),
])
def test_what_it_cannot_compute_is_refused(engine, checkpoint, tmp_path, changes, message):
    folder = with_config(checkpoint("llama_plain", "a"), tmp_path, **changes)
    assert message in engine.refusal(folder, tmp_path, [[1]])


# From here on: the decode step in tensors, on the CPU. They are the operations that a CUDA graph holds elsewhere.

def assert_step_is_as_the_decoder(engine, spec, folder, tmp_path, recipe, prompts):
    """The decoder's logits are held against transformers' above. Sums are in another order here, and the bits others;
    recurrent layers amplify that, in transformers' fp32 logits by as much."""
    logits = engine.logits(folder, tmp_path, 1, recipe, prompts, computed_by="both")
    limit = 5e-5 if spec.startswith(("mamba2", "nemotron_h", "qwen3_next", "qwen3_5")) else 1e-5
    assert_close(logits[len(prompts):], logits[:len(prompts)], limit)


# Every family that is registered (tests/oracle/test_matrix.py fails where one has no row), and what some have besides.
@pytest.mark.parametrize("spec", [*((family.ragged or family.in_blocks)[0] for family in matrix.FAMILIES.values()),
                                  "deepseek_v2_greedy", "deepseek_v3_half", "mamba2_groups", "nemotron_h_moe",
                                  "nemotron_h_latent"])
def test_fp32_logits_of_every_family_in_tensors_agree(engine, checkpoint, tmp_path, spec):
    folder = with_config(checkpoint(spec, "a"), tmp_path, dtype="float32", torch_dtype=None)
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"] - 3, (1, 7, 33, 60))
    assert_step_is_as_the_decoder(engine, spec, folder, tmp_path, "none", prompts)


@pytest.mark.parametrize("spec", ["llama_plain", "gemma2", "gpt_oss", "deepseek_v3", "qwen3_next", "nemotron_h_latent"])
def test_fp32_logits_of_the_step_in_tensors_agree_with_transformers(engine, checkpoint, tmp_path, spec):
    folder = with_config(checkpoint(spec, "a"), tmp_path, dtype="float32", torch_dtype=None)
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"] - 3, (1, 33))
    expected = reference_logits(reference_model(folder, torch.float32), prompts)
    assert_close(engine.logits(folder, tmp_path, 1, "none", prompts, computed_by="step"), expected, limit_of(spec))


@pytest.mark.parametrize("spec", IN_TENSORS_ROUNDED)
def test_the_step_in_tensors_rounds_as_well_as_transformers(engine, checkpoint, tmp_path, spec):
    check_rounding(engine, checkpoint(spec, "a"), tmp_path, spec, computed_by="step")


@pytest.mark.parametrize("recipe", ["fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "nvfp4",
                                    "int8_per_channel"])
def test_the_step_in_tensors_reads_every_kernel_format(engine, checkpoint, tmp_path, recipe):
    spec = "llama_blocks_fp32" if recipe in recipes.COLUMN_UNITS else "llama_plain"
    folder = checkpoint(spec, "b")
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"])
    got = engine.logits(folder, tmp_path, 1, recipe, prompts, computed_by="step")
    with torch.no_grad():
        model = dequantized(folder, recipe)
    assert_close(got, reference_logits(model, prompts))


@pytest.mark.parametrize("spec, recipe", [("qwen3_moe_blocks", recipe) for recipe in recipes.RECIPES] +
                         [("gpt_oss_blocks", "mxfp4"), ("deepseek_v3_blocks", "nvfp4"),
                          ("qwen3_5_moe_blocks", "fp8_per_block"), ("nemotron_h_blocks", "mxfp8"),
                          ("mamba2_blocks", "fp8_per_channel")])
def test_mixtures_and_states_in_tensors_are_read_in_every_kernel_format(engine, checkpoint, tmp_path, spec, recipe):
    folder = with_config(checkpoint(spec, "b"), tmp_path, dtype="float32", torch_dtype=None)
    prompts = prompts_for(checkpoints.SPECS[spec].config["vocab_size"], (2, 20))
    assert_step_is_as_the_decoder(engine, spec, folder, tmp_path, recipe, prompts)


@pytest.mark.parametrize("rope", ROPES)
def test_the_step_in_tensors_turns_to_the_last_position(engine, checkpoint, tmp_path, rope):
    folder = with_config(checkpoint("llama_plain", "a"), tmp_path, rope_parameters=ROPES[rope], rope_theta=None,
                         rope_scaling=None)
    prompts = prompts_for(1003, (512,))
    got = engine.logits(folder, tmp_path, 1, "none", prompts, computed_by="step")
    assert_close(got, reference_logits(reference_model(folder, torch.float32), prompts))

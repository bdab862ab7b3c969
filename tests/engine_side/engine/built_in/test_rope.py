"""Rotary embeddings to the bit: powers as torch computes them, and from these the frequencies as transformers does.

torch computes whole blocks by a vectorized power; how long they are depends on the CPU
(engine_side/engine/built_in/power.h). ctest therefore runs this with ATEN_CPU_CAPABILITY=avx2.
"""

import json
import os
import subprocess

import pytest
import torch
import transformers
from transformers.models.llama import modeling_llama

DRIVER = os.environ["LAYERCAST_ROPE_DRIVER"]
# The defaults of all families, what published models have, and some that none has.
THETAS = (10000.0, 1e6, 5e6, 150000.0, 500000.0, 160000.0, 8e6, 1e7, 1e11, 1e8, 1e9, 1e10, 25000.0, 26000.0, 32768.0,
          40000.0, 50000.0, 51200.0, 2e5, 2.5e5, 3e5, 6e5, 1048576.0, 1.2e6, 1.5e6, 2e6, 3e6, 4e6, 1000000007.0, 5000.0,
          1000.0, 500.0, 100.0, 10.0, 2.0, 1.5, 1.0, 0.75, 3.4e38)
DIMS = range(4, 258, 2)  # rotated elements of a head: all of them, or a partial_rotary_factor's

needs_avx2 = pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX2",
                                reason="torch's powers are of other blocks here than with AVX2")


@pytest.fixture(scope="module")
def ask():
    process = subprocess.Popen([DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(**request):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield ask
    process.communicate(timeout=30)
    assert process.returncode == 0


def bits(numbers):
    return torch.as_tensor(numbers, dtype=torch.float32).view(torch.int32)


@needs_avx2
@pytest.mark.parametrize("theta", THETAS)
def test_powers_are_those_of_torch(ask, theta):
    for dim in DIMS:
        exponents = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
        powers = ask(base=theta, exponents=exponents.tolist())["powers"]
        assert torch.equal(bits(powers), bits(theta**exponents)), dim


@needs_avx2
def test_powers_of_any_positive_base_and_exponent_are_those_of_torch(ask):
    generator = torch.Generator().manual_seed(7)
    for base in torch.empty(64).log_normal_(0.0, 12.0, generator=generator).tolist():
        exponents = torch.rand(512, generator=generator) * 2 - 1
        powers = ask(base=base, exponents=exponents.tolist())["powers"]
        assert torch.equal(bits(powers), bits(base**exponents)), base


ROPES = {
    "default": {},
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 2.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32768},
    "yarn_mscale": {"factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.8, "mscale_all_dim": 1.1,
                    "beta_fast": 16.0, "beta_slow": 2.0, "truncate": 0.0},
}


@needs_avx2
@pytest.mark.parametrize("theta", (10000.0, 150000.0, 1e6))
@pytest.mark.parametrize("rope", ROPES)
def test_frequencies_are_those_of_transformers(ask, rope, theta):
    kind, numbers = rope.partition("_")[0], ROPES[rope]
    parameters = {"rope_type": kind, "rope_theta": theta, **numbers}
    if "truncate" in parameters:
        parameters["truncate"] = bool(parameters["truncate"])
    for dim in (*range(4, 66, 2), 80, 96, 112, 128, 160, 192, 256):
        config = transformers.LlamaConfig(hidden_size=dim, num_attention_heads=1, num_key_value_heads=1, head_dim=dim,
                                          max_position_embeddings=131072, rope_parameters=dict(parameters))
        expected = modeling_llama.LlamaRotaryEmbedding(config)
        got = ask(type=kind, theta=theta, dim=dim, max_positions=131072, numbers=numbers)
        assert torch.equal(bits(got["frequencies"]), bits(expected.inv_freq)), dim
        assert torch.equal(bits(got["attention_factor"]), bits(expected.attention_scaling)), dim

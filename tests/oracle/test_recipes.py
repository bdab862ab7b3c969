"""Our recipes against the oracle's, which casts with torch: bit for bit, on every bf16 and fp16 value and on weights
chosen to be awkward. LAYERCAST_RECIPE_DRIVER names the program of recipe_driver.cc."""

import os
import subprocess

import pytest
import torch

import oracle
import recipes

QUANTIZED = recipes.RECIPES[1:]


def run(recipe, weight, *words, tensor_amax=None, row_amax=None):
    given = [tensor_amax.float().reshape(1)] if tensor_amax is not None else []
    words += ("tensor_amax",) if tensor_amax is not None else ()
    given += [row_amax.float()] if row_amax is not None else []
    words += ("row_amax",) if row_amax is not None else ()
    dtype = str(weight.dtype).removeprefix("torch.")
    command = [os.environ["LAYERCAST_RECIPE_DRIVER"], recipe, dtype, *map(str, weight.shape), *words]
    data = b"".join(oracle.raw_bytes(tensor).numpy().tobytes() for tensor in (*given, weight))
    return subprocess.run(command, input=data, capture_output=True, check=False)


def assert_same(recipe, weight, *words, tensor_amax=None, row_amax=None):
    done = run(recipe, weight, *words, tensor_amax=tensor_amax, row_amax=row_amax)
    assert done.returncode == 0, done.stderr.decode()
    whole = weight.abs().amax() if tensor_amax is None else tensor_amax
    rows = weight.abs().amax(dim=1) if row_amax is None else row_amax
    expected = recipes.quantize(recipe, weight, whole, rows, power_of_two="pow2" in words)
    at = 0
    for name, tensor in expected.items():
        want = oracle.raw_bytes(tensor)
        got = torch.frombuffer(bytearray(done.stdout[at : at + len(want)]), dtype=torch.uint8)
        different = (got != want).nonzero()
        assert not len(different), (
            f"{recipe} {list(weight.shape)} {weight.dtype} {words}: {name}: {len(different)} of {len(want)} bytes "
            f"differ, first at {different[0].item()}: got {got[different[0]].item()}, "
            f"expected {want[different[0]].item()}")
        at += len(want)
    assert at == len(done.stdout)


def every_finite(dtype):
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    values = bits.view(dtype)
    return values[torch.isfinite(values)]


def normal(rows, columns, dtype, scale=1.0, seed=0):
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    return (values * scale).to(dtype)


def whole_blocks(recipe, columns):
    unit = recipes.COLUMN_UNITS.get(recipe, 1)
    return -(-columns // unit) * unit


def variants(recipe):
    return [(), ("pow2",)] if recipe == "fp8_per_block" else [()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("recipe", QUANTIZED)
def test_every_value_once(recipe, dtype):
    values = every_finite(dtype)
    for divisor in (1, 7, 500):
        # With the largest values in one row or block their scale swamps all others: so by size, and in disorder.
        some = values[values.abs() <= torch.finfo(dtype).max / divisor]
        by_size = some[some.abs().float().argsort(stable=True)]
        shuffled = some[torch.randperm(len(some), generator=torch.Generator().manual_seed(divisor))]
        for ordered in (by_size, shuffled):
            weight = ordered[: len(ordered) // 256 * 256].reshape(-1, 256)
            for words in variants(recipe):
                assert_same(recipe, weight, *words)


@pytest.mark.parametrize("recipe", QUANTIZED)
def test_every_value_against_scales_of_many_sizes(recipe):
    values = every_finite(torch.bfloat16)
    for amax in (0.0126953125, 1.0, 3.1875, 6.5, 447.0, 448.0, 30976.0):
        some = values[(values.abs() <= amax)]
        some = torch.cat([some, torch.full((256 - len(some) % 256,), amax, dtype=some.dtype)]).reshape(-1, 256)
        some[:, 0] = amax
        some[:, 128] = amax
        for words in variants(recipe):
            assert_same(recipe, some, *words)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("recipe", recipes.RECIPES)
def test_ragged_shapes_and_sizes_from_tiny_to_huge(recipe, dtype):
    shapes = [(1, 1), (1, 300), (129, 1), (127, 129), (128, 128), (130, 40), (3, 257), (257, 383)]
    scales = (1e-30, 1e-6, 0.02, 1.0, 9000.0)
    for seed, shape in enumerate(shapes):
        for scale in {scales[seed % 5], scales[(seed + 2) % 5]}:
            for words in variants(recipe):
                assert_same(recipe, normal(shape[0], whole_blocks(recipe, shape[1]), dtype, scale, seed), *words)


@pytest.mark.parametrize("recipe", QUANTIZED)
def test_zeros_constants_and_outliers(recipe):
    columns = whole_blocks(recipe, 150)
    zero = torch.zeros(200, columns, dtype=torch.bfloat16)
    outlier = normal(200, columns, torch.bfloat16, 1e-3)
    outlier[17, 140] = 300.0
    half_zero = normal(200, columns, torch.bfloat16)
    half_zero[:130, :129] = 0.0
    half_zero[140] = -0.0
    for weight in (zero, -zero, torch.full_like(zero, 0.375), torch.full_like(zero, -3e38), outlier, half_zero):
        for words in variants(recipe):
            assert_same(recipe, weight, *words)


def test_magnitudes_from_other_ranks_are_used():
    weight = normal(96, 80, torch.bfloat16)
    for recipe in ("fp8_per_tensor", "nvfp4"):
        assert_same(recipe, weight, tensor_amax=torch.tensor(11.5))
    rows = weight.abs().amax(dim=1).float() * torch.linspace(1.0, 3.0, 96)
    for recipe in ("fp8_per_channel", "int8_per_channel"):
        assert_same(recipe, weight, row_amax=rows)


@pytest.mark.parametrize("recipe", QUANTIZED)
def test_pieces_of_rows_give_the_same_bytes(recipe):
    weight = normal(300, 224, torch.bfloat16)
    size = 128 if recipe == "fp8_per_block" else 7
    amax = weight.abs().amax() if recipe in ("fp8_per_tensor", "nvfp4") else None
    assert_same(recipe, weight, f"piece={size}", tensor_amax=amax)
    rows = weight.abs().amax(dim=1).float() * 1.5
    if recipe in ("fp8_per_channel", "int8_per_channel"):
        assert_same(recipe, weight, f"piece={size}", row_amax=rows)


@pytest.mark.parametrize("recipe, columns", [("mxfp8", 48), ("mxfp4", 48), ("nvfp4", 40)])
def test_blocks_that_are_not_whole_are_refused(recipe, columns):
    done = run(recipe, normal(4, columns, torch.bfloat16))
    assert done.returncode == 1
    assert f"blocks of {recipes.COLUMN_UNITS[recipe]}, got {columns}" in done.stderr.decode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("recipe", QUANTIZED)
def test_nan_and_infinity_are_refused_with_their_place(recipe, value):
    weight = normal(140, 160, torch.bfloat16)
    weight[133, 129] = value
    amax = torch.tensor(5.0) if recipe in ("fp8_per_tensor", "nvfp4") else None
    done = run(recipe, weight, tensor_amax=amax)
    assert done.returncode == 1
    message = done.stderr.decode()
    assert message.startswith("corrupt:") and "133" in message and "129" in message

"""What each recipe makes of a weight, by torch alone. `whole` is the fused weight of all ranks, `local` this rank's part
of it, both in the model's dtype."""

import torch

RECIPES = ("none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "nvfp4", "int8_per_channel", "mxfp4")
COLUMN_UNITS = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16}  # a rank's columns must be a multiple
FP8_MAX = 448.0
BLOCK = 128


def quantize(recipe, local, whole_amax, row_amax, power_of_two=False):
    """suffix -> tensor. whole_amax: of the whole fused weight. row_amax: of this rank's rows, over the columns of all
    ranks."""
    if recipe == "none":
        return {"weight": local}
    if recipe == "fp8_per_tensor":
        return _per_tensor(local.float(), whole_amax)
    if recipe == "fp8_per_channel":
        return _per_channel(local.float(), row_amax)
    if recipe == "fp8_per_block":
        return _per_block(local.float(), power_of_two)
    if recipe == "mxfp8":
        return _mxfp8(local.float())
    if recipe == "mxfp4":
        return _mxfp4(local.float())
    if recipe == "nvfp4":
        return _nvfp4(local.float(), whole_amax)
    if recipe == "int8_per_channel":
        return _int8(local.float(), row_amax)
    raise ValueError(f"no recipe {recipe}")


def _fp8(values):
    return values.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def _per_tensor(w, amax):
    scale = amax.float().reshape(1) / FP8_MAX
    reciprocal = 1.0 / scale
    if torch.isinf(reciprocal):  # all zero, or so small that it might as well be
        return {"weight": torch.zeros_like(w).to(torch.float8_e4m3fn), "weight_scale": torch.zeros(1)}
    return {"weight": _fp8(w * reciprocal), "weight_scale": scale}


def _per_channel(w, row_amax):
    scale = torch.clamp(row_amax.float() / FP8_MAX, min=1.0 / (FP8_MAX * 512.0)).reshape(-1, 1)
    return {"weight": _fp8(w / scale), "weight_scale": scale}


def _per_block(w, power_of_two):
    n, k = w.shape
    block_rows, block_columns = -(-n // BLOCK), -(-k // BLOCK)
    padded = torch.zeros(block_rows * BLOCK, block_columns * BLOCK)
    padded[:n, :k] = w
    blocks = padded.view(block_rows, BLOCK, block_columns, BLOCK)
    scale = blocks.abs().amax(dim=(1, 3)).clamp(min=1e-4) / FP8_MAX
    if power_of_two:
        scale = _round_up_to_power_of_two(scale)
    quantized = blocks * (1.0 / scale)[:, None, :, None]
    values = quantized.reshape(padded.shape)[:n, :k].to(torch.float8_e4m3fn)
    return {"weight": values.contiguous(), "weight_scale_inv": scale}


def _round_up_to_power_of_two(scale):
    mantissa, exponent = torch.frexp(scale)  # scale = mantissa * 2^exponent, 0.5 <= mantissa < 1
    return torch.where(mantissa == 0.5, scale, torch.ldexp(torch.ones_like(scale), exponent))


def _in_power_of_two_units(w, largest):
    """Blocks of 32 columns in units of the smallest power of two that amax / largest does not exceed, from 2^-127 on;
    and its biased exponent."""
    n, k = w.shape
    blocks = w.reshape(n, k // 32, 32).double()
    powers = torch.exp2(torch.arange(-127, 128).double())
    index = torch.searchsorted(powers * largest, blocks.abs().amax(dim=2))
    return (blocks / powers[index][:, :, None]).float().reshape(n, k), index.to(torch.uint8)


def _mxfp8(w):
    values, exponents = _in_power_of_two_units(w, FP8_MAX)
    return {"weight": values.to(torch.float8_e4m3fn), "weight_scale": exponents}


def _mxfp4(w):
    values, exponents = _in_power_of_two_units(w, 6.0)
    return {"weight": _packed(e2m1(values)), "weight_scale": exponents}


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
E2M1_TIES = (E2M1[:-1] + E2M1[1:]) / 2


def e2m1(values):
    """Codes: the nearest magnitude (the last one for all beyond), of two that are as near the even code; bit 3: sign."""
    magnitude = values.abs()
    below, above = (torch.bucketize(magnitude, E2M1_TIES, right=right) for right in (False, True))  # differ on ties alone
    return torch.where(torch.signbit(values), 8, 0) | torch.where(below % 2 == 0, below, above)


def _packed(codes):
    """Two in a byte, the even column's in its low half."""
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)


def _nvfp4(w, amax):
    n, k = w.shape
    g = torch.tensor(FP8_MAX * 6.0) / amax.float()
    if torch.isinf(g * 512):  # all zero, or so small that it might as well be
        return {"weight": torch.zeros(n, k // 2, dtype=torch.uint8),
                "weight_scale": torch.zeros(n, k // 16).to(torch.float8_e4m3fn), "weight_scale_2": torch.zeros(1)}
    codes, scale = nvfp4_blocks(w, g)
    return {"weight": codes, "weight_scale": scale, "weight_scale_2": (1.0 / g).reshape(1)}


def nvfp4_blocks(w, g):
    """Packed codes and scales of blocks under the global factor g."""
    n, k = w.shape
    blocks = w.reshape(n, k // 16, 16)
    scale = (g * (blocks.abs().amax(dim=2) / 6.0)).to(torch.float8_e4m3fn)
    codes = e2m1(blocks * (g / scale.float())[:, :, None])
    return _packed(torch.where((scale.float() == 0)[:, :, None], 0, codes).reshape(n, k)), scale


def _int8(w, row_amax):
    scale = (row_amax.float() / 127.0).reshape(-1, 1)
    values = torch.where(scale == 0, 0.0, (w / scale).round().clamp(-127, 127))
    return {"weight": values.to(torch.int8), "weight_scale": scale}


def dequantized(served, name):
    """fp32 weight `name`, a matrix or a stack of them, as a kernel reads it; None if it is not quantized."""
    values, scale = served[name], served.get(f"{name}_scale")

    def of_each_matrix(numbers):
        return numbers.view(-1, 1, 1) if values.dim() == 3 else numbers

    if f"{name}_scale_inv" in served:
        blocks = served[f"{name}_scale_inv"].repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)
        return values.float() * blocks[..., : values.shape[-2], : values.shape[-1]]
    if scale is None:
        return None
    if values.dtype == torch.uint8:
        codes = torch.stack([values & 15, values >> 4], dim=-1).flatten(-2).long()
        values = torch.where(codes < 8, E2M1[codes & 7], -E2M1[codes & 7])
    if f"{name}_scale_2" in served:
        return values * (scale.float() * of_each_matrix(served[f"{name}_scale_2"])).repeat_interleave(16, -1)
    if scale.dtype == torch.uint8:
        return values.float() * torch.exp2(scale.float() - 127).repeat_interleave(32, -1)
    return values.float() * (of_each_matrix(scale) if scale.dim() == 1 else scale)

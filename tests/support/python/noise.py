"""A version's noise in numpy, as src/noise/normals.h says it. Used by tests of the package and of the program."""

import numpy

MASK = numpy.uint64(0xFFFFFFFF)
HALF = numpy.uint64(32)


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def seed_of(lineage, step, run_seed=0):
    return fnv1a(f"{lineage}@{step}#{run_seed}")


def philox(counter, key):
    """Philox4x32-10 of counters, four arrays of uint64 below 2^32."""
    c = [numpy.asarray(word, numpy.uint64) for word in counter]
    k = [numpy.uint64(key & 0xFFFFFFFF), numpy.uint64(key >> 32)]
    for _ in range(10):
        first = c[0] * numpy.uint64(0xD2511F53)
        second = c[2] * numpy.uint64(0xCD9E8D57)
        c = [(second >> HALF) ^ c[1] ^ k[0], second & MASK, (first >> HALF) ^ c[3] ^ k[1], first & MASK]
        k = [(k[0] + numpy.uint64(0x9E3779B9)) & MASK, (k[1] + numpy.uint64(0xBB67AE85)) & MASK]
    return c


def logarithm(u):
    m, exponent = numpy.frexp(u)
    low = m < 0.7071067811865476
    m, exponent = numpy.where(low, m * 2, m), exponent - low
    s = (m - 1) / (m + 1)
    total = numpy.full_like(s, 1.0 / 21.0)
    for odd in range(19, 0, -2):
        total = total * (s * s) + 1.0 / odd
    return exponent * 0.6931471805599453 + 2 * s * total


def series(first, square):
    """1/first! - square/(first + 2)! + ..., nine terms."""
    factorials = [1.0]
    for n in range(1, 18):
        factorials.append(factorials[-1] * n)
    terms = [(-1.0) ** i / factorials[first + 2 * i] for i in range(9)]
    total = numpy.full_like(square, terms[-1])
    for term in reversed(terms[:-1]):
        total = total * square + term
    return total


def circle(v):
    quarters = numpy.floor(4 * v + 0.5)
    angle = 6.283185307179586 * (v - quarters / 4)
    sine, cosine = angle * series(1, angle * angle), series(0, angle * angle)
    turn = quarters.astype(int) % 4
    return (numpy.choose(turn, [cosine, -sine, -cosine, sine]), numpy.choose(turn, [sine, cosine, -sine, -cosine]))


def normals(seed, name, count):
    """Numbers 0 to count - 1 of a seed and a name, in fp32."""
    blocks = numpy.arange((count + 3) // 4, dtype=numpy.uint64)
    named = fnv1a(name)
    words = philox([blocks & MASK, blocks >> HALF, numpy.full_like(blocks, named & 0xFFFFFFFF),
                    numpy.full_like(blocks, named >> 32)], seed)
    inside = [(word.astype(numpy.float64) + 0.5) / 4294967296.0 for word in words]
    drawn = []
    for u, v in (inside[:2], inside[2:]):
        radius = numpy.sqrt(-2 * logarithm(u))
        cosine, sine = circle(v)
        drawn += [radius * cosine, radius * sine]
    return numpy.stack(drawn, axis=1).reshape(-1)[:count].astype(numpy.float32)


def noisy(weight, name, sigma, seed):
    """What is served of a norm's weight, in its dtype."""
    drawn = numpy.float32(sigma) * normals(seed, name, weight.size)
    rounded = drawn.astype(weight.dtype).astype(numpy.float32)
    return (weight.astype(numpy.float32) + rounded).astype(weight.dtype)

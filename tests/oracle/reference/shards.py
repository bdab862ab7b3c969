"""Half-open ranges of a checkpoint tensor's rows (or columns) that rank r of t keeps."""

VOCABULARY_PADDING = 64


def shard(size, t, r):
    if size % t != 0:
        raise ValueError(f"{size} is not divisible by {t}")
    return range(r * size // t, (r + 1) * size // t)


def kv_shard(rows, heads, t, r):
    """Rows of k or v: every rank has at least one head, so heads are repeated where there are more ranks."""
    if t <= heads:
        return shard(rows, t, r)
    if t % heads != 0:
        raise ValueError(f"{t} is not divisible by {heads}")
    return shard(rows, heads, r // (t // heads))


def padded_vocabulary(size):
    return -(-size // VOCABULARY_PADDING) * VOCABULARY_PADDING


def vocabulary_shard(size, t, r):
    """Rows that are there, and how many rows this rank holds with padding."""
    rows = shard(padded_vocabulary(size), t, r)
    return range(min(rows.start, size), min(rows.stop, size)), len(rows)


def rows_of(tensor, wanted):
    return tensor[wanted.start : wanted.stop]

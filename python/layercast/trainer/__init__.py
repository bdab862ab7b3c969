from types import SimpleNamespace
def pieces_of(weights, *, dtype=None, adapters="merge", gather=False):
    if hasattr(weights, "named_parameters"):
        p = [(n, t.detach()) for n, t in weights.named_parameters()]
    elif hasattr(weights, "items"):
        p = list(weights.items())
    elif isinstance(weights, (list, tuple)):
        p = list(weights)
    else:
        p = iter(weights)
    return SimpleNamespace(pieces=p, rank=0, ranks=1, config="")

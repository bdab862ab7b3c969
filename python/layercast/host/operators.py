"""What the schema of one of torch's operators says of its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Of arguments or results, nested as they may be."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one)


def written(op: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The arguments that it writes."""
    roles = zip(op._schema.arguments, _values(op, args, kwargs))
    return [tensor for argument, value in roles if _is_written(argument) for tensor in tensors_in(value)]


def read(op: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The arguments whose values it uses and keeps."""
    roles = zip(op._schema.arguments, _values(op, args, kwargs))
    return [tensor for argument, value in roles if not _is_written(argument) for tensor in tensors_in(value)]


def changed(op: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The arguments that it writes and whose values it may use: not those that are there for results (``out=``)."""
    roles = zip(op._schema.arguments, _values(op, args, kwargs))
    kept = (value for argument, value in roles if _is_written(argument) and not argument.is_out)
    return [tensor for value in kept for tensor in tensors_in(value)]


def _values(op: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    for index, argument in enumerate(op._schema.arguments):
        yield args[index] if index < len(args) else kwargs.get(argument.name)


def _is_written(argument: Any) -> bool:
    return bool(argument.alias_info and argument.alias_info.is_write)

"""Which values casts keep: a receiver casts once, from the source's dtype to the parameter's."""

from __future__ import annotations

import torch

from layercast.host.memory import Computed, Content, Copied, sources_of


def cast(content: Content, before: torch.dtype, after: torch.dtype) -> Content:
    """What a copy of it from one dtype to another holds."""
    if not isinstance(content, Copied) or keeps_values(before, after):
        return content
    if content.rounded not in (None, after):
        why = f"'{content.source.tensor}': rounded to {content.rounded}, and then to {after}"
        return Computed(why, sources_of([content]))
    return content._replace(rounded=after)


def in_full(content: Content, dtype: torch.dtype) -> Content:
    """A receiver casts a source to the parameter's dtype at once."""
    if isinstance(content, Copied) and content.rounded not in (None, dtype):
        why = f"'{content.source.tensor}': rounded to {content.rounded}, for a parameter of {dtype}"
        return Computed(why, sources_of([content]))
    return content


def keeps_values(before: torch.dtype, after: torch.dtype) -> bool:
    """Whether every value of one dtype is one of the other, too."""
    if before == after:
        return True
    if before.is_complex or after.is_complex or torch.bool in (before, after):
        return False
    if before.is_floating_point:
        if not after.is_floating_point:
            return False
        few, many = torch.finfo(before), torch.finfo(after)
        smallest = many.tiny * many.eps <= few.tiny * few.eps
        return bool(many.eps <= few.eps and many.max >= few.max and smallest)
    most, least = torch.iinfo(before).max, torch.iinfo(before).min
    if after.is_floating_point:
        return bool(most * torch.finfo(after).eps <= 2 and most <= torch.finfo(after).max)
    return bool(most <= torch.iinfo(after).max and least >= torch.iinfo(after).min)

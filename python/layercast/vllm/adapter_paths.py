"""Paths that requests say of adapters of publishers, in the place of a folder's."""

from __future__ import annotations

PREFIX = "layercast://"


def path_of(name: str, digest: str = "") -> str:
    """Of one version of a name; without a digest of its newest, whichever that is when a forward pass needs it.

    vLLM's prefix cache keys on it: with the digest, no version finds another's blocks.
    """
    return f"{PREFIX}{name}?{digest}" if digest else f"{PREFIX}{name}"


def version_in(path: str) -> tuple[str, str] | None:
    """The name and the digest, or ""; None: it is a path of vLLM's own."""
    if not path.startswith(PREFIX):
        return None
    name, _, digest = path.removeprefix(PREFIX).partition("?")
    return name, digest

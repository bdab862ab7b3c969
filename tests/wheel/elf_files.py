"""What ELF files say of themselves: the libraries they need, where they look for them, and whether they are stripped."""

import dataclasses
import pathlib

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile


@dataclasses.dataclass(frozen=True)
class File:
    needed: frozenset  # of names
    search_path: tuple  # of folders
    has_symbols: bool


def read_all(folder: pathlib.Path) -> dict[pathlib.Path, File]:
    """The ELF files below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.open("rb").read(4) == b"\x7fELF")
    return {path: _read(path) for path in files}


def _read(path):
    needed, search_path = set(), []
    with path.open("rb") as stream:
        file = ELFFile(stream)
        for section in file.iter_sections():
            for tag in section.iter_tags() if isinstance(section, DynamicSection) else ():
                if tag.entry.d_tag == "DT_NEEDED":
                    needed.add(tag.needed)
                elif tag.entry.d_tag == "DT_RPATH":
                    search_path += tag.rpath.split(":")
                elif tag.entry.d_tag == "DT_RUNPATH":
                    search_path += tag.runpath.split(":")
        return File(frozenset(needed), tuple(search_path), file.get_section_by_name(".symtab") is not None)

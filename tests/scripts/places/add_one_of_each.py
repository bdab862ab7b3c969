#!/usr/bin/env python3
"""Adds one of each kind of thing to a copy of the tree, as CONTRIBUTING.md says, and counts the places that it took.

    add_one_of_each.py             in a copy that is thrown away: what needs no build; a ctest
    add_one_of_each.py FOLDER      in FOLDER, which is new or empty, for `scripts/nightly places` to build and to use

A place is a file that is edited, or a file or folder that is added. Each kind is one commit of the copy. Its places must
be those of CONTRIBUTING.md's table, no other and no more, and scripts/check_rooms must be content with the whole. What a
program prints into a page is not counted: the rooms in CONTRIBUTING.md, the families in docs/models.md.

What is added is a sibling's text under another name, put beside what is the sibling's. So where a guide is out of date,
or this script, an anchor is not found, and the error says which guide it is.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PRINTED = {"CONTRIBUTING.md", "docs/models.md"}


class Copy:
    """A copy of the tree, with a git of its own."""

    def __init__(self, folder):
        self.folder, self.guide = folder, None
        folder.mkdir(parents=True, exist_ok=True)
        here = ("-C", str(ROOT))
        for name in self.git(*here, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
            if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self.git("init", "-q")
        objects = self.git(*here, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
        self.write(".git/objects/info/alternates", objects + "\n")  # what is there is not written once more
        self.commit("The tree as it is")

    def git(self, *arguments):
        settings = ("-c", "user.name=places", "-c", "user.email=places@localhost", "-c", "core.hooksPath=/dev/null")
        alone = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # not a hook's git
        return subprocess.run(["git", *settings, *arguments], cwd=self.folder, env=alone, check=True, capture_output=True,
                              text=True).stdout

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def places(self):
        """Of the last commit: what was edited, and what was added, a folder that is new as one."""
        before = self.git("ls-tree", "-r", "--name-only", "HEAD~1").splitlines()
        there = {str(folder) for path in before for folder in pathlib.PurePosixPath(path).parents}
        found = set()
        for path in map(pathlib.PurePosixPath, self.git("diff", "--name-only", "HEAD~1", "HEAD").splitlines()):
            found.add(str([path, *(folder for folder in path.parents if str(folder) not in there)][-1]))
        return found - PRINTED

    def read(self, path):
        if not (self.folder / path).is_file():
            self.fail(path, "there is no such file")
        return (self.folder / path).read_text()

    def write(self, path, text):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def fail(self, path, what):
        sys.exit(f"{path}: {what}. Either CONTRIBUTING.md, '{self.guide}', is out of date, or {pathlib.Path(__file__).name}")

    def part(self, path, begin, end):
        """The text from `begin` to the end of `end`, of which there is one after it."""
        text = self.read(path)
        first = text.find(begin)
        last = text.find(end, first)
        if first < 0 or last < 0:
            self.fail(path, f"found no {begin!r} with {end!r} behind it")
        return text[first : last + len(end)]

    def replace(self, path, old, new):
        if self.read(path).count(old) != 1:
            self.fail(path, f"expected {old!r} once, found it {self.read(path).count(old)} times")
        self.write(path, self.read(path).replace(old, new))

    def beside(self, path, sibling, *names):
        """Puts a sibling's text there once more, behind it and under other names."""
        self.replace(path, sibling, sibling + self.renamed(path, sibling, *names))

    def renamed(self, path, text, *names):
        was = text
        for old, new in names:
            text = text.replace(old, new)
        if text == was:
            self.fail(path, f"found nothing to rename in {was[:60]!r}")
        return text


# ---- one function a kind, in the order of the table; the guide is the section of CONTRIBUTING.md --------------------------


def rows_beside(copy, page, name):
    """In each table of a page."""
    for row in re.findall(rf"^\| {name[0]}.*\n", copy.read(page), re.M):
        copy.beside(page, row, name)


def transport(copy):
    names = (("inproc", "twin"), ("Inproc", "Twin"))
    for file in ("inproc_transport.h", "inproc_transport.cc"):
        path = f"src/transport/inproc/{file}"
        copy.write(copy.renamed(path, path, names[0]), copy.renamed(path, copy.read(path), *names))
    rooms = "cmake/rooms.txt"
    copy.beside(rooms, copy.part(rooms, "src/transport/inproc |", "\n"), names[0])
    copy.replace(rooms, " src/transport/shm src/transport/ucx ", " src/transport/shm src/transport/twin src/transport/ucx ")
    subprocess.run([sys.executable, copy.folder / "scripts/check_rooms", "--print"], check=True)
    table = "src/transport/all/transports.cc"
    copy.beside(table, copy.part(table, '#include "src/transport/inproc/', "\n"), names[0])
    copy.beside(table, copy.part(table, '    {.name = "inproc"', "\n"), *names)
    rows_beside(copy, "docs/transports.md", ("`inproc`", "`twin`"))


def message(copy):
    header = "src/transport/zmq/zmq_messages.h"
    names = (("PieceHeader", "Twin"), ('"PIECE"', '"TWIN"'), ("Kind::kPiece", "static_cast<Kind>(140)"))
    copy.beside(header, copy.part(header, "struct PieceHeader {", "\n}\n"), *names)
    page = "src/transport/zmq/FORMAT.md"
    copy.beside(page, copy.part(page, "| `PIECE` = 130", "\n"), ("`PIECE` = 130", "`TWIN` = 140"))
    test = "tests/src/transport/zmq/zmq_messages_test.cc"
    copy.beside(test, copy.part(test, "  EXPECT_EQ(Hex(Encode(PieceHeader{", "\n"), names[0], ('"82', '"8c'))


def source(copy):
    dummy = "engine_side/reload/sources/dummy_weights.cc"
    names = (("Dummy", "Twin"), ("dummy", "twin"))
    body = copy.part(dummy, "class DummySource final", "\n};\n")
    maker = copy.part(dummy, "ReloadSource FromDummy(", "}\n")
    body = copy.renamed(dummy, body, ("DummySource", "TwinSource"), ('"dummy"', '"twin"'))
    copy.write("engine_side/reload/sources/twin_source.cc", f"""// Random weights, as those of dummy_weights.h.
#include "engine_side/reload/prequantized/quantized_layers.h"
#include "engine_side/reload/sources/dummy_weights.h"
#include "engine_side/reload/sources/walk_source.h"

namespace layercast {{
namespace {{

{body}
}}  // namespace

{copy.renamed(dummy, maker, names[0])}
}}  // namespace layercast
""")
    doors = "include/layercast/reload_source.h"
    copy.beside(doors, copy.part(doors, "// Random weights of that seed", ";\n"), *names)
    rpc = "engine_side/server/group/reload_request.cc"
    copy.replace(rpc, "  return IsDummy(params) ?", """  if (IsGiven(params, "twin")) return FromTwin(params["twin"].get<std::uint64_t>());
  return IsDummy(params) ?""")
    page = "engine_side/server/RPC.md"
    copy.beside(page, copy.part(page, '| `load_format` "dummy"', "\n"), ('`load_format` "dummy", with `seed` 0', "`twin`, a seed"))


def commit_policy(copy):
    sibling = "engine_side/reload/commit/commit_staged.cc"
    names = (("StagedCommitter", "TwinCommitter"), ("`staged`", "`twin`"))
    copy.write("engine_side/reload/commit/commit_twin.cc", copy.renamed(sibling, copy.read(sibling), *names))
    copy.replace("include/layercast/commit_policy.h", "kInPlace };", "kInPlace, kTwin };")
    table = "engine_side/reload/commit/commit_policy.cc"
    copy.replace(table, "MakePolicy MakeStagedCommitter;", "MakePolicy MakeStagedCommitter, MakeTwinCommitter;")
    row = copy.part(table, "    {CommitPolicy::kStaged,", "\n")
    copy.beside(table, row, ("kStaged", "kTwin"), ('"staged"', '"twin"'), ("MakeStaged", "MakeTwin"))
    rows_beside(copy, "docs/commit.md", ("`staged`", "`twin`"))
    copy.replace("tests/engine_side/reload/commit/committer_test.cc", "expected staged, undo", "expected staged, twin, undo")


def model_family(copy):
    sibling = "engine_side/model/families/llama.cc"
    copy.write("engine_side/model/families/twin.cc", copy.renamed(sibling, copy.read(sibling), ("Llama", "Twin")))
    table = "engine_side/model/registry/builtin_families.cc"
    copy.replace(table, "\n    BuildLlama, ", "\n    BuildLlama, BuildTwin, ")
    row = copy.part(table, '    {"llama", ', "\n")
    copy.replace(table, "};\n\nconstexpr BuiltinDraftModel",  # by name
                 copy.renamed(table, row, ("llama", "twin"), ("Llama", "Twin")) + "};\n\nconstexpr BuiltinDraftModel")
    # transformers has no such family: here the class that writes its checkpoints is its sibling's.
    specs = "tests/support/python/checkpoints.py"
    copy.beside(specs, copy.part(specs, '    _spec("llama_fp16", ', "\n"), ("llama_fp16", "twin"))
    copy.beside(specs, copy.part(specs, '    _spec("llama_blocks_fp32", ', "\n"), ("llama_blocks_fp32", "twin_blocks"))
    matrix = "tests/support/python/matrix.py"
    copy.beside(matrix, copy.part(matrix, '    "LlamaForCausalLM": ', "\n"),
                ("LlamaForCausalLM", "TwinForCausalLM"), ('("llama", "llama_plain", "llama_fp16")', '("twin",)'),
                ("llama_blocks_fp32", "twin_blocks"))
    page = "docs/models.md"
    copy.replace(page, "<!-- end -->", copy.renamed(page, copy.part(page, "| `LlamaForCausalLM` |", "\n"), ("Llama", "Twin")) +
                 "<!-- end -->")


def recipe(copy):
    name = ("fp8_per_channel", "fp8_per_twin")
    table = "engine_side/quant/recipes/recipe_table.cc"
    copy.beside(table, copy.part(table, '    RecipeRow{.name = "fp8_per_channel"', "\n"), name)
    kernels = "engine_side/quant/cuda/cuda_recipes.cc"
    copy.beside(kernels, copy.part(kernels, '    {"fp8_per_channel"', "\n"), name)
    page = "engine_side/quant/RECIPES.md"
    copy.beside(page, copy.part(page, "| `fp8_per_channel` | one per row", "\n"), name)
    reference = "engine_side/quant/reference.cc"
    copy.beside(reference, copy.part(reference, '  if (name == "fp8_per_channel") {', "  }\n"), name)
    cases = "tests/engine_side/quant/recipes/recipe_cases.h"
    copy.beside(cases, copy.part(cases, "inline constexpr RecipeCase kChannelCase{", "\n"), name, ("kChannelCase", "kTwinCase"))
    copy.replace(cases, "kInt8Case};", "kInt8Case, kTwinCase};")
    bodies = "tests/engine_side/quant/cuda/bodies/cuda_bodies_test.cc"
    copy.beside(bodies, copy.part(bodies, '  if (name == "fp8_per_channel")', "\n"), name)
    oracle = "tests/oracle/reference/recipes.py"
    copy.replace(oracle, '"mxfp4")\n', '"mxfp4", "fp8_per_twin")\n')
    copy.beside(oracle, copy.part(oracle, '    if recipe == "fp8_per_channel":', "row_amax)\n"), name)


KINDS = {"transport": transport, "message": message, "source of versions": source, "commit policy": commit_policy,
         "model family": model_family, "recipe": recipe}


# ---- what CONTRIBUTING.md says of it ---------------------------------------------------------------------------------


def promised():
    """kind -> (number, the paths that its row names, with NAME for what is added)."""
    rows = {}
    for row in re.findall(r"^\| \[([^]]+)\]\(#adding-[^|]*\| (\d+) \| ([^|]*) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M):
        rows[row[0]] = (int(row[1]), set(re.findall(r"`([^`]+)`", row[2])))
    if set(rows) != set(KINDS):
        sys.exit(f"CONTRIBUTING.md: its table of places is of {sorted(rows)}, expected {sorted(KINDS)}")
    return rows


def add_all(copy):
    """What is not as CONTRIBUTING.md promises."""
    for kind, (number, paths) in promised().items():
        copy.guide = f"Adding a {kind}"
        KINDS[kind](copy)
        copy.commit(f"One more {kind}")
        took = {place.replace("twin", "NAME") for place in copy.places()}
        print(f"{kind}: {len(took)} places")
        if len(took) > number or took != paths:
            yield f"a {kind}: CONTRIBUTING.md promises {number} places, {sorted(paths)}, but it took {len(took)}, {sorted(took)}"
    done = subprocess.run([sys.executable, copy.folder / "scripts/check_rooms"], capture_output=True, text=True)
    if done.returncode != 0:
        yield f"with one more of each:\n{done.stdout}{done.stderr}"


def main():
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else scratch).resolve()
        if folder.exists() and any(folder.iterdir()):
            sys.exit(f"{folder} is not empty")
        problems = list(add_all(Copy(folder)))
        for number, problem in enumerate(problems, 1):
            print(f"{number}. {problem}")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Fails where the shared library exports a name that include/layercast does not mark LAYERCAST_PUBLIC."""

import argparse
import pathlib
import re
import subprocess
import sys

PREFIX = re.compile(r"^(vtable for|VTT for|typeinfo for|typeinfo name for|(non-)?virtual thunk to|guard variable for) ")
PUBLIC_TYPE = re.compile(r"(?:class|struct) LAYERCAST_PUBLIC (\w+)")
PUBLIC_FUNCTION = re.compile(r"LAYERCAST_PUBLIC [^;{(]*?(\w+)\(")


def public_names(headers):
    text = "\n".join(path.read_text() for path in sorted(headers.rglob("*.h")))
    return set(PUBLIC_TYPE.findall(text)), set(PUBLIC_FUNCTION.findall(text)) - {"__attribute__"}, set(re.findall(r"\w+", text))


def path_of(symbol):
    """['layercast', 'Error', 'code'] of 'layercast::Error::code() const'."""
    name = PREFIX.sub("", symbol).replace("[abi:cxx11]", "")
    name = re.sub(r"\(anonymous namespace\)", "anonymous", name)
    return re.split(r"[(<\[]", name.replace("operator(", "operator"))[0].split("::")


def exported(nm, library):
    lines = subprocess.run([nm, "-D", "--defined-only", "-C", library], capture_output=True, text=True, check=True).stdout
    return sorted({re.sub(r"^\S+ \S ", "", line) for line in lines.splitlines()})


def complaint(symbol, types, functions, words):
    path = path_of(symbol)
    if path[0] != "layercast" or len(path) < 2:
        return "is not Layercast's"
    if path[1] in types:
        hidden = [word for word in path[2:] if word in ("Impl", "State") or word.lstrip("~").split(" ")[0] not in words]
        return f"'{hidden[0]}' is private: mark it LAYERCAST_HIDDEN" if hidden and "operator" not in hidden[0] else None
    return None if path[1] in functions else "is not LAYERCAST_PUBLIC in include/layercast"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--library", required=True)
    parser.add_argument("--headers", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    types, functions, words = public_names(arguments.headers)
    symbols = exported(arguments.nm, arguments.library)
    found = [(symbol, why) for symbol in symbols if (why := complaint(symbol, types, functions, words))]
    for symbol, why in found:
        print(f"exported, and should not be: {symbol}: {why}")
    missing = {name for name in functions | types if not any(name in path_of(symbol) for symbol in symbols)}
    print(f"{len(symbols)} symbols exported, {len(found)} of them wrongly; of the public names, none of these has any "
          f"code in the library: {', '.join(sorted(missing)) or 'all have'}")
    sys.exit(1 if found or not symbols else 0)


main()

"""The commands of the program that vLLM servers answer: ``status``, ``reload``, ``verify`` and ``adapter`` with ``--engine
http://...``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from layercast._native import Version
from layercast.controller import Controller
from layercast.errors import Error, InvalidArgument
from layercast.proofs import verify


def asks_http(arguments: list[str]) -> bool:
    """Whether an engine that is named is a vLLM server."""
    return any(
        argument.startswith("--engine=http") or (before == "--engine" and argument.startswith("http"))
        for before, argument in zip([""] + arguments, arguments)
    )


def run(arguments: list[str]) -> int:
    """Returns the exit status: 0; 1 if something failed, or if served bytes differ; 2 if what is asked is wrong."""
    asked = _parser().parse_args(arguments)
    try:
        answer, status = _answer(asked)
    except Error as error:
        answer, status = {"error": {"code": error.code, "message": str(error)}}, 1
        print(f"layercast {asked.command}: {error}", file=sys.stderr)
    if asked.json or asked.command == "status":
        print(json.dumps(answer, indent=None if asked.json else 2))
    elif "error" not in answer:
        print("\n".join(f"{key}: {value}" for key, value in answer.items()))
    return status


def _answer(asked: argparse.Namespace) -> tuple[dict[str, Any], int]:
    if asked.command == "status":
        return Controller(asked.engine.split(",")).status(), 0
    if asked.command == "verify":
        found = verify(asked.engine, asked.model)
        return {"equal": found.equal, "differences": [str(difference) for difference in found.differences]}, int(not found)
    with Controller(asked.engine.split(",")) as controller:
        if asked.command == "adapter":
            return _of_adapters(controller, asked), 0
        outcomes = controller.reload(
            asked.publisher,
            all_or_none=asked.all_or_none,
            adapters=[name for name in asked.adapters.split(",") if name],
            pause_mode=asked.pause_mode,
            timeout=asked.timeout,
        )
    return {outcome.endpoint: str(outcome.version) for outcome in outcomes}, 0


def _of_adapters(controller: Controller, asked: argparse.Namespace) -> dict[str, Any]:
    if asked.action == "list":
        return controller.list_adapters()
    if asked.action == "unload":
        outcomes = controller.unload_adapter(asked.name)
    else:
        lineage, _, step = asked.version.rpartition("@")
        if asked.version and not (lineage and step.isdecimal()):
            raise InvalidArgument(f"--version: expected LINEAGE@STEP, got '{asked.version}'")
        outcomes = controller.load_adapter(
            asked.name,
            publisher=asked.publisher,
            version=Version(lineage, int(step)) if asked.version else None,
            adapter=asked.adapter,
            timeout=asked.timeout,
        )
    return {outcome.endpoint: None if outcome.version is None else str(outcome.version) for outcome in outcomes}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("layercast", description="What vLLM servers answer; see docs/vllm.md.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("status", "verify", "reload", "adapter"):
        command = commands.add_parser(name)
        if name == "adapter":
            command.add_argument("action", choices=["load", "unload", "list"])
            command.add_argument("--name", default="", help="by which requests ask for the adapter")
            command.add_argument("--adapter", default="", help="what the version calls it; by default its only one")
            command.add_argument("--version", default="", help="LINEAGE@STEP of the publisher; by default its newest")
        command.add_argument("--engine", required=True, help="http://HOST:PORT, several separated by commas")
        command.add_argument("--json", action="store_true")
        if name == "verify":
            command.add_argument("--model", required=True, help="the folder of a checkpoint that the server can read")
        if name in ("reload", "adapter"):
            needed = name == "reload"
            command.add_argument("--publisher", required=needed, help="endpoints of all ranks of a trainer")
            command.add_argument("--timeout", type=float, default=300.0)
        if name == "reload":
            command.add_argument("--all-or-none", action="store_true")
            command.add_argument("--adapters", default="", help="of the version, committed with it; separated by commas")
            command.add_argument("--pause-mode", default="", choices=["", "wait", "keep", "abort"])
    return parser

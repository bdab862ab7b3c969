"""docs/cli.md and `--help` name the same options of each subcommand."""

import pathlib
import re

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "cli.md").read_text()
COMMANDS = re.findall(r"^\| \[`([a-z]+)`\]", PAGE, re.MULTILINE)
EVERYWHERE = {"--json", "--help", "--timeout", "--keys", "--secret", "--insecure"}  # told once, for all subcommands


def options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def usage(command):
    """The command lines of the page that have everything that the subcommand takes."""
    blocks = re.findall(rf"^```\n(layercast {command}\b.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return "\n".join(blocks) or "\n".join(re.findall(rf"^`(layercast {command}\b[^`]*)`", PAGE, re.MULTILINE))


def test_the_page_has_every_subcommand(program):
    listed = re.findall(r"^  ([a-z]+) ", program.text("--help").split("Subcommands:")[1], re.MULTILINE)
    assert sorted(COMMANDS) == sorted(listed)
    assert EVERYWHERE <= options(PAGE.split("## `publish`")[0])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_page_name_the_same_options(command, program):
    help_ = program.text(command, "--help")
    listed = set(re.findall(r"^  (?:-h,)?(--[a-z-]+)", help_, re.MULTILINE))
    assert listed - EVERYWHERE == options(usage(command)) - EVERYWHERE
    assert options(help_) <= listed | EVERYWHERE

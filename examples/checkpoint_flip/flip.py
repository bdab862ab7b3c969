"""One running FP8 engine, two checkpoints: `3 4 = ` is 12, after a live reload 7, and after another 12 again.

python flip.py [LAYERCAST] [QUANTIZATION] drives the program as a script would (docs/cli.md): `serve` keeps running, each
checkpoint is published by its own `publish`, and `reload` makes it live. Needs nothing but Python.
"""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER.parents[1] / "build/release/bin/layercast")
QUANTIZATION = sys.argv[2] if len(sys.argv) > 2 else "fp8_per_channel"
VOCABULARY = json.loads((FOLDER / "vocab.json").read_text())
CHARACTERS = {token: character for character, token in VOCABULARY["tokens"].items()}


class Running:
    """`serve` or `publish`, from its readiness line to the end of the block."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __enter__(self):
        self.process = subprocess.Popen([PROGRAM, *self.arguments, "--json"], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line or not json.loads(line).get("ready"):
            raise SystemExit(f"layercast {self.arguments[0]} did not start")  # it has said why
        return json.loads(line)["endpoint"]

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def layercast(*arguments):
    done = subprocess.run([PROGRAM, *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def answer(engine, question):
    prompt = ",".join(str(VOCABULARY["tokens"][c]) for c in question)
    said = layercast("generate", "--engine", engine, "--tokens", prompt, "--max-new", "3")
    text = "".join(CHARACTERS.get(token, "?") for token in said["tokens"])
    return text.split(VOCABULARY["end"])[0], said["spans"][0]["version"]


def ask(engine, expected):
    question = VOCABULARY["prompt"].format(a=3, b=4)
    text, version = answer(engine, question)
    print(f"{question}{text:<4} (version {version['lineage']}@{version['step']})", flush=True)
    if text != expected:
        raise SystemExit(f"expected {expected}")


def make_live(engine, checkpoint, step):
    arguments = ("publish", "--model", FOLDER / checkpoint, "--lineage", "flip", "--step", str(step))
    with Running(*arguments) as publisher:
        outcome = layercast("reload", "--engine", engine, "--publisher", publisher)["engines"][0]
    report = outcome["report"]
    print(f"  {checkpoint} is live: {report['bytes']} bytes over {report['channel']['name']} in "
          f"{report['total_ms']:.1f} ms", flush=True)


def main():
    with Running("serve", "--model", FOLDER / "multiply", "--tp", "2", "--quantization", QUANTIZATION) as engine:
        ask(engine, "12")
        make_live(engine, "add", 1)
        ask(engine, "7")
        make_live(engine, "multiply", 2)
        ask(engine, "12")


if __name__ == "__main__":
    main()

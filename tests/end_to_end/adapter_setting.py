"""An engine with LoRA adapters in its slots, and PEFT's answers for them. Used by the tests of adapters."""

import json

import torch

import adapters

LIMIT = 1e-5  # of the largest logit (tests/oracle/test_adapters.py)
APART = 10 * LIMIT
PROMPT = (3, 11, 4, 250, 77, 8)


class AdapterSetting:
    """Versions of an adapter are numbers: the seeds that their factors are made from. All are of one base, in fp32."""

    def __init__(self, program, start, kept, base):
        self.program, self.start, self.kept, self.base = program, start, kept, base
        self._oracle, self._models = None, {}

    def serve(self, *words, slots=3, failpoints="", max_rank=16):
        self.engine = self.start("serve", "--model", self.base, "--adapter-slots", slots, "--max-adapter-rank", max_rank, *words,
                                 failpoints=failpoints)
        return self.engine

    def folder(self, version, targets="all-linear", how="plain"):
        return self.kept.adapter(self.base, targets, how, version)

    def publish(self, version, step, *words, lineage="run", name="policy", failpoints=""):
        return self.start("publish", "--adapter", f"{name}={self.folder(version)}", "--lineage", lineage, "--step", step, *words,
                          failpoints=failpoints)

    def load(self, name, version, *words, status=0, engine=None):
        return self.load_from("--path", self.folder(version), *words, name=name, status=status, engine=engine)

    def load_from(self, *words, name="policy", status=0, engine=None):
        return self.call("load", name, *words, status=status, engine=engine)

    def call(self, action, name, *words, status=0, engine=None):
        """The outcome of one engine."""
        endpoint = (engine or self.engine).endpoint
        return self.program.run("adapter", action, "--engine", endpoint, "--name", name, *words, status=status).json["outcomes"][0]

    def is_whole(self, version, name="policy"):
        """Whether every byte of the slot is that of a load of the folder."""
        words = ("--adapter", name, "--model", self.folder(version))
        return self.program.run("verify", "--engine", self.engine.endpoint, *words, status=None).json["equal"]

    def list(self, engine=None):
        return self.program.run("adapter", "list", "--engine", (engine or self.engine).endpoint).json["engines"][0]["adapters"]

    def names(self, engine=None):
        return [entry["name"] for entry in self.list(engine) if entry["state"] == "served"]

    def uses(self, name):
        return sum(entry.get("uses", 0) for entry in self.list() if entry["name"] == name)

    def asking(self, name, new=24, prompt=PROMPT, repeat=None, seed=0, engine=None):
        """The words of a command. Every token is about as likely, so that log-probabilities say something of all."""
        words = ["generate", "--engine", (engine or self.engine).endpoint, "--tokens", ",".join(map(str, prompt)), "--max-new", new,
                 "--temperature", 100, "--seed", seed, "--logprobs", "--ignore-eos"]
        return [*words, *(("--adapter", name) if name else ()), *(("--repeat", repeat) if repeat else ())]

    def answer(self, name="policy", **how):
        return self.program.run(*self.asking(name, **how)).json

    @property
    def oracle(self):
        self._oracle = self._oracle or adapters.Oracle(self.base)
        return self._oracle

    def peft(self, version):
        if version not in self._models:
            self._models[version] = self.oracle.with_adapter(self.folder(version))
        return self._models[version]

    def distances(self, answers, version, prompt=PROMPT):
        """Of answers of one length, from what PEFT says of that version: [answers, tokens], against the largest logit."""
        tokens = torch.tensor([answer["tokens"] for answer in answers])
        got = torch.tensor([answer["logprobs"] for answer in answers], dtype=torch.float64)
        rows = torch.cat([torch.tensor([prompt] * len(answers)), tokens[:, :-1]], 1)
        with torch.no_grad():
            logits = self.peft(version)(rows).logits[:, len(prompt) - 1 :].double()
        expected = logits.log_softmax(-1).gather(2, tokens[..., None])[..., 0]
        return (got - expected).abs() / logits.abs().max()

    def assert_is_peft(self, answer, folder):
        logits = self.oracle.logits(self.oracle.with_adapter(folder), PROMPT, answer["tokens"])
        off = torch.tensor(answer["logprobs"], dtype=torch.float64) - adapters.logprobs(logits, answer["tokens"])
        assert off.abs().max() / logits.abs().max() < LIMIT

    def assert_is(self, answer, version, others=()):
        assert answer["finish"] == "length"
        assert self.distances([answer], version).max() < LIMIT
        assert all(self.distances([answer], other).max() > APART for other in others)


def only(values):
    """The one value that all of them are."""
    different = {json.dumps(value, sort_keys=True) for value in values}
    assert len(different) == 1, different
    return json.loads(different.pop())

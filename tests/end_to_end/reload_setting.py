"""An engine that serves version A while version B is on its way to it, and what it takes to see which of
them it serves. Used by the tests of faults and of commit policies."""

import pathlib

import oracle

RECIPE = "fp8_per_channel"
PROMPT = (3, 11, 4, 250)


class Setting:
    """An engine that serves A, and what it takes to see that it still does, or that it serves B."""

    def __init__(self, program, start, checkpoint, assert_serves):
        self.program, self.start, self.assert_serves = program, start, assert_serves
        self.folders = {version: checkpoint("qwen3", version) for version in ("a", "b")}

    def serve(self, commit="staged", failpoints="", tp=2, pp=1, chunk_bytes=16384):
        self.engine = self.start("serve", "--model", self.folders["a"], "--tp", tp, "--pp", pp, "--quantization", RECIPE,
                                 "--chunk-bytes", chunk_bytes, "--commit", commit, failpoints=failpoints)
        self.versions = {"a": self.engine.version}
        self.answer_of_a = self.answer()["tokens"]

    def publish(self, *arguments, folder=None, failpoints=""):
        self.publisher = self.start("publish", "--model", folder or self.folders["b"], *arguments,
                                    failpoints=failpoints)
        return self.publisher

    def answer(self):
        return self.program.generate(self.engine, PROMPT, "--max-new", 6)

    def reload(self, *arguments, status=None):
        return self.program.reload(self.engine, *arguments, status=status)

    def assert_failed_and_still_serving_a(self, done, *words):
        assert done["version"] == self.versions["a"]
        self.assert_failed(done, *words)
        self.assert_serving_a()

    def assert_failed(self, done, *words):
        assert not done["ok"]
        message = done["error"]["message"]
        assert all(word in message for word in words), message
        assert self.program.status(self.engine)["last_error"] == done["error"]

    def assert_serving_a(self):
        answer = self.answer()
        assert answer["tokens"] == self.answer_of_a
        assert [span["version"] for span in answer["spans"]] == [self.versions["a"]]
        status = self.program.status(self.engine)
        assert status["state"] == "serving" and status["torn"] is None
        self.assert_serves(self.engine, self.folders["a"], RECIPE)

    def assert_torn(self, done, to):
        """Between A and the version `to`: nothing is served, and whoever asks is told so."""
        assert done["version"] is None
        status = self.program.status(self.engine)
        assert status["state"] == "torn" and status["version"] is None
        assert status["torn"]["from"] == self.versions["a"]
        assert all(status["torn"]["to"][field] == to[field] for field in ("lineage", "step"))
        refused = self.program.run("generate", "--engine", self.engine.endpoint, "--tokens", "3,11", status=1)
        assert refused.json["error"]["code"] == "failed_precondition"
        assert "torn between" in refused.json["error"]["message"]
        nowhere = pathlib.Path(self.folders["a"]).parent / "torn"
        refused = self.program.run("export", "--engine", self.engine.endpoint, "--out", nowhere, status=1)
        assert refused.json["error"]["code"] == "failed_precondition" and not nowhere.exists()

    def assert_takes_b(self, publisher=None, *arguments):
        done = self.reload("--publisher", (publisher or self.publisher).endpoint, *arguments, status=0)
        assert done["version"] == (publisher or self.publisher).version
        self.assert_serves(self.engine, self.folders["b"], RECIPE)
        answer = self.answer()
        assert answer["tokens"] != self.answer_of_a
        assert [span["version"] for span in answer["spans"]] == [done["version"]]
        assert self.program.status(self.engine)["last_error"] is None
        return done["report"]


def struck_mid_transfer(report):
    return 0 < report["bytes"] < report["bytes_total"]


def fired(daemon, name):
    return f"failpoint {name} fired" in daemon.errors()


def spoiled(folder, out, edit):
    """A copy of a checkpoint with edit(tensors) applied, in a single file."""
    import safetensors.torch

    tensors = oracle.read_tensors(folder)
    edit(tensors)
    out.mkdir()
    (out / "config.json").write_bytes((folder / "config.json").read_bytes())
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(contiguous, out / "model.safetensors")
    return out


NAN_IN = "model.layers.1.mlp.up_proj.weight"


def put_nan(tensors):
    tensors[NAN_IN] = tensors[NAN_IN].clone()
    tensors[NAN_IN][5, 7] = float("nan")

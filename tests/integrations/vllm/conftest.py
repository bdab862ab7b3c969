"""What the tests against vLLM's wheel share: small policies of transformers, and vLLM's processes on a CPU."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

# vLLM's CUDA wheel on a CPU: cpu_ops.py stands in for what it has for GPUs alone.
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
PATHS = [str(HERE), str(HERE / "plugin"), *filter(None, [os.environ.get("PYTHONPATH")])]
START = 180.0  # seconds that a server has to come up in


@pytest.fixture(scope="session")
def policies(tmp_path_factory):
    """policies(kind, seed) -> (model, folder that save_pretrained has written)."""
    made = {}

    def policy(kind, seed):
        if (kind, seed) not in made:
            import checkpoints

            made[kind, seed] = checkpoints.policy(kind, seed, tmp_path_factory.mktemp(f"{kind}-{seed}"))
        return made[kind, seed]

    return policy


def child_environment(**more):
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(PATHS), **more}


class Server:
    """A `vllm serve` with Layercast's door."""

    def __init__(self, folder, log, *, tp=1, quantization="none", environment=None, options=()):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder), "--port", str(port)]
        command += ["--served-model-name", "policy", "--dtype", "bfloat16", "--enforce-eager", "--skip-tokenizer-init"]
        command += ["--max-model-len", "128", "--tensor-parallel-size", str(tp), "--enable-scale-out"]
        command += ["--weight-transfer-config", '{"backend": "layercast"}', *options]
        if quantization != "none":
            command += ["--quantization", quantization]
        plugins = "layercast,layercast_cpu_ops"
        with open(log, "w") as out:
            self.process = subprocess.Popen(
                command,
                env=child_environment(VLLM_PLUGINS=plugins, **(environment or {})),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_up(self):
        began = time.monotonic()
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return self
            assert self.process.poll() is None and time.monotonic() - began < START, self.log()[-3000:]
            time.sleep(0.25)

    def generate(self, prompt, tokens=8, timeout=60):
        """Greedy token ids."""
        sampling = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, "detokenize": False}
        body = {"model": "policy", "token_ids": list(prompt), "sampling_params": sampling}
        return self.post("inference/v1/generate", body, timeout)["choices"][0]["token_ids"]

    def post(self, path, body, timeout=60):
        request = urllib.request.Request(
            f"{self.url}/{path}", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def log(self):
        return pathlib.Path(self._log).read_text()

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


@pytest.fixture
def serve(tmp_path):
    """serve(folder, tp=..., quantization=..., environment=..., options=...) -> a server that is up; ended afterwards."""
    servers = []

    def start(folder, *, wait=True, **how):
        servers.append(Server(folder, tmp_path / f"server-{len(servers)}.log", **how))
        return servers[-1].wait_until_up() if wait else servers[-1]

    yield start
    for server in servers:
        server.stop()

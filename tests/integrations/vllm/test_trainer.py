"""A trainer that uses vLLM's own trainer-side interfaces publishes its shards, and a running server serves them."""

import pathlib
import subprocess
import sys

from conftest import child_environment

CASE = pathlib.Path(__file__).with_name("train_case.py")


def test_fsdp2_shards_reach_a_server_without_a_gather(policies, serve, tmp_path):
    folder = policies("qwen3", 1)[1]
    server = serve(folder, tp=2)
    before = server.generate([1, 5, 7])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",]
    command += ["--standalone", str(CASE), str(folder), server.url, str(tmp_path / "saved")]
    ran = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    after = server.generate([1, 5, 7])
    cold = serve(tmp_path / "saved", tp=2)
    assert after == cold.generate([1, 5, 7]) != before
    assert server.post("layercast/verify", {})["version"]["step"] == 2

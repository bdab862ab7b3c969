"""Every query of docs/grafana/layercast.json is asked of Debian's Prometheus, which watches real syncs each second, and
has an answer. And promtool finds no fault with what is scraped. Run by `scripts/nightly metrics`, which unpacks Prometheus
and says where: LAYERCAST_PROMETHEUS."""

import json
import math
import os
import pathlib
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

from metrics import scrape
from program import wait_until

TOOLS = pathlib.Path(os.environ.get("LAYERCAST_PROMETHEUS", "/usr/bin"))
BOARD = pathlib.Path(__file__).parents[3] / "docs" / "grafana" / "layercast.json"
METRICS = ("--metrics-bind", "127.0.0.1:0")


def queries():
    board = json.loads(BOARD.read_text())
    return [pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
            for panel in board["panels"] for target in panel.get("targets", [])]


class Prometheus:
    """Debian's, which scrapes these addresses once a second."""

    def __init__(self, folder, targets):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"127.0.0.1:{free.getsockname()[1]}"
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "layercast", "static_configs": [{"targets": targets}]}]}))
        with open(folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [TOOLS / "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={self.url}"], stdout=log, stderr=log)
        wait_until(self._is_ready, 60, "Prometheus is not ready: " + (folder / "log").read_text())

    def _is_ready(self):
        try:
            return urllib.request.urlopen(f"http://{self.url}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def ask(self, expression):
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://{self.url}/api/v1/query?{query}", timeout=20) as answer:
            return json.load(answer)["data"]["result"]

    def end(self):
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def fleet(program, start_shared, checkpoint):
    """A publisher, an engine that relays, and one that takes from it."""
    model = checkpoint("llama", "a")
    publisher = start_shared("publish", "--model", model, "--lineage", "run", "--step", 0, "--channel", "zmq", "--allow-path",
                             model.parent, *METRICS)
    engines = [start_shared("serve", "--model", model, "--tp", 2, "--chunk-bytes", 20_000, *METRICS, *more)
               for more in (("--relay", "tcp://127.0.0.1:0"), ())]
    return publisher, engines


@pytest.fixture(scope="module")
def watched(program, fleet, checkpoint, tmp_path_factory):
    """Prometheus, after 15 seconds of syncs: rates are over 5 of them."""
    publisher, engines = fleet
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), [daemon.ready["metrics"] for daemon in (publisher, *engines)])
    end, step = time.monotonic() + 15, 0
    while time.monotonic() < end:
        step += 1
        program.run("publish", "--to", publisher.endpoint, "--model", checkpoint("llama", "ab"[step % 2]), "--lineage", "run",
                    "--step", step)
        for engine in engines:
            program.reload(engine, "--publisher", publisher.endpoint, "--channel", "zmq")
            program.generate(engine, (3, 11, 4), "--max-new", 2)
    yield prometheus
    prometheus.end()


def test_promtool_finds_no_fault(fleet):
    publisher, engines = fleet
    for daemon in (publisher, *engines):
        # prometheus-cpp's own series, of its exposer, are not ours to name.
        ours = "".join(line + "\n" for line in scrape(daemon).text.splitlines() if "exposer_" not in line)
        checked = subprocess.run([TOOLS / "promtool", "check", "metrics"], input=ours, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("query", queries())
def test_each_query_of_the_dashboard_has_an_answer(query, watched):
    expression = query.replace("$__rate_interval", "5s").replace("$instance", ".*")
    assert "$" not in re.sub(r"\$\$", "", expression)
    result = watched.ask(expression)
    assert result, f"nothing: {expression}"
    values = [float(one["value"][1]) for one in result]
    assert not any(map(math.isnan, values)), f"{expression}: {values}"

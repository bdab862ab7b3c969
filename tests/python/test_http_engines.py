"""The controller over HTTP: what it asks of vLLM servers' doors, and what becomes of their answers and silences."""

import contextlib
import http.server
import json
import threading

import layercast
import pytest
import torch
from layercast.http.http_commands import asks_http, run

VERSION = {"lineage": "run", "step": 3, "digest": "0" * 32}


class Server(http.server.ThreadingHTTPServer):
    """Answers as python/layercast/vllm/door.py says; `fails` maps a route to an error."""

    daemon_threads = True

    def __init__(self, fails=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.fails, self.asked, self.version, self.adapters = fails or {}, [], None, {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer({})

    def do_POST(self):
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}"))

    def _answer(self, body):
        if not self.path.startswith("/layercast/"):
            self.send_error(404)
            return
        route = self.path.removeprefix("/layercast/")
        self.server.asked.append((route, body, self.headers.get("Authorization")))
        error = self.server.fails.get(route)
        if route in ("reload", "commit") and error is None:
            self.server.version = VERSION
        if route == "load_adapter" and error is None:
            self.server.adapters[body["name"]] = VERSION
        if route == "unload_adapter" and error is None:
            del self.server.adapters[body["name"]]
        rank = {"rank": 0, "report": None, "differences": []}
        answer = {"version": self.server.version, "torn": False, "ranks": [rank], "adapters": self.server.adapters}
        answer = answer if error is None else {"error": error}
        data = json.dumps(answer).encode()
        self.send_response(200 if error is None else 500)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:

        def start(**fails):
            server = stack.enter_context(Server(fails))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            return server

        yield start


def routes(server):
    return [route for route, *_ in server.asked if route != "status"]


def test_asks_for_the_version_that_was_published(serve, publisher):
    server = serve()
    published = publisher.publish({"w": torch.ones(2)}, step=3)
    with layercast.Controller([server.url], api_key="secret") as controller:
        (outcome,) = controller.reload(published, pause_mode="keep")
    assert outcome.version == layercast.Version("run", 3, "0" * 32) and outcome.previous is None
    route, body, key = server.asked[-1]
    assert route == "reload" and key == "Bearer secret"
    version = published.version
    assert body == {
        "endpoint": publisher.endpoint, "lineage": version.lineage, "step": 3, "timeout": 300.0, "pause_mode": "keep"
    }  # fmt: skip


def test_adapters_are_committed_with_their_base(serve):
    server = serve()
    with layercast.Controller([server.url]) as controller:
        controller.reload("tcp://127.0.0.1:1", adapters=["mine", "other"])
    assert server.asked[-1][:2] == ("reload", {
        "endpoint": "tcp://127.0.0.1:1", "timeout": 300.0, "adapters": {"mine": "mine", "other": "other"}})  # fmt: skip


def test_all_or_none_commits_once_all_have_staged(serve):
    servers = [serve(), serve()]
    with layercast.Controller([server.url for server in servers]) as controller:
        controller.reload("tcp://127.0.0.1:1", all_or_none=True)
    assert [routes(server) for server in servers] == [["stage", "commit"]] * 2


def test_all_or_none_aborts_where_one_has_not_staged(serve):
    good, bad = serve(), serve(stage={"code": "unavailable", "message": "the publisher is gone"})
    with layercast.Controller([good.url, bad.url]) as controller:
        with pytest.raises(layercast.Unavailable, match="the publisher is gone"):
            controller.reload("tcp://127.0.0.1:1", all_or_none=True)
        first, second = controller.reload("tcp://127.0.0.1:1", all_or_none=True, check=False)
    assert isinstance(first.error, layercast.Cancelled) and isinstance(second.error, layercast.Unavailable)
    assert routes(good) == ["stage", "abort"] * 2 and routes(bad) == ["stage"] * 2


def test_a_server_that_is_gone_or_no_door_is_said(serve):
    server = serve()
    url = server.url
    with layercast.Controller([url, "http://127.0.0.1:9"]) as controller:
        first, second = controller.reload("tcp://127.0.0.1:1", check=False)
    assert first.ok and "http://127.0.0.1:9 cannot be reached" in str(second.error)
    with pytest.raises(layercast.Unsupported, match="VLLM_PLUGINS"):
        layercast.Controller([url + "/elsewhere"]).status()


def test_adapters_are_loaded_by_name(serve):
    server, version = serve(), layercast.Version("run", 3, "0" * 32)
    with layercast.Controller([server.url]) as controller:
        for previous in (None, version):
            (outcome,) = controller.load_adapter("mine", publisher="tcp://127.0.0.1:1", version=version, adapter="policy")
            assert (outcome.version, outcome.previous) == (version, previous)
        assert server.asked[-1][:2] == ("load_adapter", {
            "name": "mine", "adapter": "policy", "endpoint": "tcp://127.0.0.1:1", "lineage": "run", "step": 3, "timeout": 300.0})
        assert controller.list_adapters() == {"adapters": [{"name": "mine", "version": VERSION}]}
        (outcome,) = controller.unload_adapter("mine")
        assert (outcome.version, outcome.previous) == (None, version)
    failing = serve(load_adapter={"code": "not_found", "message": "no adapter 'x'"})
    with layercast.Controller([failing.url]) as controller, pytest.raises(layercast.NotFound, match="no adapter 'x'"):
        controller.load_adapter("mine", publisher="tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: c.load_adapter("mine", path="folder"), layercast.Unsupported, "path"),
        (lambda c: c.load_adapter("mine", publisher="tcp://127.0.0.1:1", pin=True), layercast.Unsupported, "pin"),
        (lambda c: c.pin_adapter("mine"), layercast.Unsupported, "max-cpu-loras"),
        (lambda c: c.reload("folder"), layercast.Unsupported, "weights_path"),
        (lambda c: c.reload("tcp://127.0.0.1:1", adapters=["*"]), layercast.Unsupported, "named with their base"),
        (lambda c: c.generate([[1]]), layercast.Unsupported, "its own API"),
        (lambda c: c.pause(), layercast.Unsupported, "its own routes"),
    ],
)
def test_what_servers_cannot_do_is_refused(serve, call, error, words):
    with layercast.Controller([serve().url]) as controller, pytest.raises(error, match=words):
        call(controller)


def test_kinds_are_not_mixed():
    with pytest.raises(layercast.InvalidArgument, match="one kind"):
        layercast.Controller(["http://127.0.0.1:1", "tcp://127.0.0.1:2"])
    with pytest.raises(layercast.InvalidArgument, match="once"):
        layercast.Controller(["http://127.0.0.1:1"] * 2)


def test_commands_of_the_program_ask_servers(serve, capsys):
    server = serve()
    assert asks_http(["status", "--engine", server.url]) and asks_http([f"--engine={server.url}"])
    assert not asks_http(["status", "--engine", "tcp://127.0.0.1:1"])
    assert run(["reload", "--engine", server.url, "--publisher", "tcp://127.0.0.1:1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {server.url: f"run@3:{'0' * 16}"}
    assert run(["status", "--engine", server.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == VERSION
    assert run(["verify", "--engine", server.url, "--model", "policy"]) == 0
    assert "equal: True" in capsys.readouterr().out
    load = ["adapter", "load", "--engine", server.url, "--name", "mine", "--publisher", "tcp://127.0.0.1:1"]
    assert run([*load, "--version", "run@3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {server.url: f"run@3:{'0' * 16}"}
    assert run(["adapter", "list", "--engine", server.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["adapters"][0]["name"] == "mine"
    assert run(["adapter", "unload", "--engine", server.url, "--name", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {server.url: None}
    assert run([*load, "--version", "3", "--json"]) == 1
    assert "LINEAGE@STEP" in capsys.readouterr().out
    assert run(["status", "--engine", "http://127.0.0.1:9", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "unavailable"

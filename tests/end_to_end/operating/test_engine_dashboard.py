"""`serve --dashboard`: what the page is told, what it may do, and, where a browser is there (LAYERCAST_CHROMIUM, set by
`scripts/nightly browser`), what it shows."""

import html.parser
import json
import os
import pathlib
import re
import subprocess
import urllib.request

import pytest

from program import wait_until

PAGE = pathlib.Path(__file__).parents[3] / "engine_side" / "server" / "http" / "dashboard.html"
# Would run where it is not taken as text.
HOSTILE = "<img src=x onerror=document.title='owned'>"
BROWSER = os.environ.get("LAYERCAST_CHROMIUM")


def fetch(engine, path):
    with urllib.request.urlopen(f"http://{engine.ready['http']}{path}", timeout=60) as answer:
        return answer.headers, answer.read().decode()


def status_of(engine):
    return json.loads(fetch(engine, "/dashboard/status")[1])


@pytest.fixture
def publisher(start, checkpoint):
    return start("publish", "--model", checkpoint("llama", "b"), "--lineage", HOSTILE, "--step", 7)


@pytest.fixture
def engine(program, start, checkpoint, publisher):
    """Has taken a version of that name, and failed to take another."""
    engine = start("serve", "--model", checkpoint("llama", "a"), "--tp", 2, "--http-bind", "127.0.0.1:0", "--dashboard")
    program.reload(engine, "--publisher", publisher.endpoint)
    program.reload(engine, "--publisher", publisher.endpoint, "--version", f"{HOSTILE}@8", status=1)
    return engine


def test_it_tells_what_top_tells_and_the_last_syncs(program, engine, publisher):
    wait_until(lambda: status_of(engine)["publishers"][0]["status"], 20, "the publisher was not asked")
    told = status_of(engine)
    top = program.run("top", "--once", "--engine", engine.endpoint, "--publisher", publisher.endpoint).json
    assert told["publishers"] == top["publishers"]
    assert told["engines"] == top["engines"] and told["engines"][0]["status"] == program.status(engine)
    first, taken, failed = told["syncs"]
    report = program.status(engine)["last_report"] or {}
    assert first["ok"] and taken["ok"] and not failed["ok"]
    assert taken["version"]["lineage"] == HOSTILE and taken["channel"]["name"] and taken["stage_ms"] and taken["total_ms"] > 0
    assert failed["error"] == program.status(engine)["last_error"] and report is not None
    assert [one["pid"] for one in told["memory"]] == [engine.process.pid, *engine.pids]
    assert all(one["resident_bytes"] > 0 for one in told["memory"])
    assert told["sequences"] == {"running": 0, "waiting": 0}


class Checker(html.parser.HTMLParser):
    """Every element is closed, in order, and nothing comes from elsewhere or runs by an attribute."""

    EMPTY = {"meta", "link", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        names = dict(attributes)
        assert not {name for name in names if name.startswith("on") or name == "style"}, (tag, names)
        assert names.get("src") is None and names.get("href", "data:,").startswith("data:"), (tag, names)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_may_do_nothing_but_ask_its_engine(engine):
    headers, page = fetch(engine, "/dashboard")
    assert page == PAGE.read_text() and headers["Content-Type"] == "text/html; charset=utf-8"
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert not checker.open and checker.seen.count("script") == checker.seen.count("style") == 1
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'" and "unsafe" not in str(policy)
    for part, tag in (("script-src", "script"), ("style-src", "style")):
        assert policy[part] == source_of(re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL).group(1))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?://(?!www\.w3\.org/2000/svg)", page)


def source_of(text):
    import base64
    import hashlib

    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_without_the_option_there_is_none(start, checkpoint):
    engine = start("serve", "--model", checkpoint("llama", "a"), "--http-bind", "127.0.0.1:0")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(engine, "/dashboard")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(engine, "/dashboard/status")


@pytest.mark.skipif(BROWSER is None, reason="no browser: LAYERCAST_CHROMIUM is not set (scripts/nightly browser)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_and_runs_no_name(engine, scheme, tmp_path):
    wait_until(lambda: status_of(engine)["publishers"][0]["status"], 20, "the publisher was not asked")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--virtual-time-budget=4000", f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"]
    url = f"http://{engine.ready['http']}/dashboard"
    shown = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=120, check=True).stdout
    body = shown[shown.index("<body>"): shown.index("<script>")]
    assert f"{HOSTILE}@7".replace("<", "&lt;").replace(">", "&gt;") in body
    assert "<img" not in body and "<title>owned" not in shown
    assert '<rect class="receive"' in body or 'class="receive"' in body
    assert body.count("<rect") > 4 and "not_found" in body and "rank 1" in body
    picture = tmp_path / "page.png"
    subprocess.run([*command, f"--screenshot={picture}", url], capture_output=True, timeout=120, check=True)
    assert mean_light(picture) > 128 if scheme == "light" else mean_light(picture) < 128


def mean_light(picture):
    from PIL import Image, ImageStat

    return ImageStat.Stat(Image.open(picture).convert("L")).mean[0]

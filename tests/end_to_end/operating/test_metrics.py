"""What publishers, engines and relays tell Prometheus during real syncs: it is what reports and status say."""

import pathlib
import re
import socket

import pytest

from metrics import scrape
from program import wait_until

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "operations.md"
METRICS = ("--metrics-bind", "127.0.0.1:0")
TP = 2
# Made when a process starts, and 0: what never happened can be drawn too.
CODES = {"invalid_argument", "not_found", "failed_precondition", "corrupt", "unavailable", "deadline_exceeded",
         "resource_exhausted", "cancelled", "unsupported", "internal", "permission_denied"}


@pytest.fixture
def serve(start, checkpoint):
    def serve(*arguments):
        return start("serve", "--model", checkpoint("llama", "a"), "--tp", TP, "--quantization", "fp8_per_channel", "--chunk-bytes",
                     20_000, *METRICS, *arguments)

    return serve


def metrics_once_closed(publisher):
    """The publisher hears that a session has ended some time after the engine has said so."""
    wait_until(lambda: scrape(publisher).value("publisher_sessions") == 0, 20, "a session is still open")
    return scrape(publisher)


def test_a_publisher_an_engine_and_a_relay_tell_what_reports_say(program, start, serve, checkpoint):
    publisher = start("publish", "--model", checkpoint("llama", "b"), "--lineage", "run", "--step", 7, "--channel", "zmq",
                      "--allow-path", checkpoint("llama", "a").parent, *METRICS)
    relay, engine = serve("--relay", "tcp://127.0.0.1:0"), serve()
    before, offers = scrape(relay), scrape(publisher)
    assert offers.value("publisher_offered_step", lineage="run") == 7 and offers.value("publisher_published_total") == 1
    assert before.value("engine_state", state="serving") == 1 and before.sum("engine_state") == 1
    for said, name in ((offers, "publisher_refusals_total"), (before, "engine_refusals_total"), (before, "engine_sync_failures_total")):
        assert {labels["code"] for labels, value in said.all(name) if value == 0} == CODES
    assert {labels["rank"] for labels, _ in before.all("relay_sessions")} == {"0", "1"}

    # Straight from the publisher.
    report = program.reload(relay, "--publisher", publisher.endpoint)["report"]
    said, offers = scrape(relay), metrics_once_closed(publisher)
    assert said.value("engine_received_bytes_total", channel="zmq", peer="0") == report["bytes"]
    assert said.value("engine_receive_bytes_per_second", channel="zmq") == pytest.approx(report["channel"]["gb_per_s"] * 1e9)
    assert said.value("engine_served_step", lineage="run") == 7
    assert said.value("engine_staged_bytes") == report["staged_bytes"]
    assert said.value("engine_peak_buffered_bytes") == report["peak_buffered_bytes"]
    assert said.value("engine_version_age_seconds") <= before.value("engine_version_age_seconds") + 60
    # The first load is a sync too.
    assert said.value("engine_syncs_total", outcome="committed") == said.value("engine_sync_seconds_count") == 2
    assert said.value("engine_pause_seconds_count") == 2
    for stage, took in report["stage_ms"].items():
        assert said.value("engine_stage_seconds_count", stage=stage) == before.value("engine_stage_seconds_count", stage=stage) + 1
        grown = said.value("engine_stage_seconds_sum", stage=stage) - before.value("engine_stage_seconds_sum", stage=stage)
        assert grown == pytest.approx(took / 1000, abs=1e-6)
    assert offers.value("publisher_taken_bytes_total", peer="0") == report["bytes"]
    assert offers.value("publisher_syncs_total", peer="0") == 1
    assert offers.value("publisher_peer_step", peer="0", lineage="run") == 7
    assert offers.value("publisher_peer_behind_steps", peer="0", lineage="run") == 0
    assert offers.value("publisher_peer_behind_seconds", peer="0", lineage="run") == 0

    # All of it from the first engine.
    share = program.reload(engine, "--publisher", publisher.endpoint, "--channel", "zmq")["report"]["publishers"][0]
    assert scrape(engine).value("engine_relayed_bytes_total") == share["relayed_bytes"] > 0
    relayed = lambda: scrape(relay).sum("relay_served_bytes_total")  # noqa: E731
    wait_until(lambda: relayed() == share["relayed_bytes"], 20, f"relayed {relayed()}, expected {share['relayed_bytes']}")
    assert {labels["peer"] for labels, _ in metrics_once_closed(publisher).all("publisher_peer_info")} == {"0", "1"}

    # A newer version, which nobody has taken yet.
    program.run("publish", "--to", publisher.endpoint, "--model", checkpoint("llama", "a"), "--lineage", "run", "--step", 9)
    offers = scrape(publisher)
    assert offers.value("publisher_offered_step", lineage="run") == 9 and offers.value("publisher_versions", state="kept") == 2
    for peer in "01":
        assert offers.value("publisher_peer_behind_steps", peer=peer, lineage="run") == 2
        assert offers.value("publisher_peer_behind_seconds", peer=peer, lineage="run") > 0
    versions = program.run("versions", "list", "--publisher", publisher.endpoint).json
    assert offers.value("publisher_retained_bytes") == versions["memory_bytes"]

    # What is refused, and what fails.
    program.reload(engine, "--publisher", publisher.endpoint, "--version", "run@8", status=1)
    said = scrape(engine)
    assert said.value("engine_sync_failures_total", code="not_found") == said.value("engine_syncs_total", outcome="failed") == 1
    assert said.sum("engine_sync_failures_total") == 1 and said.value("engine_served_step", lineage="run") == 7
    assert scrape(publisher).value("publisher_refusals_total", code="not_found") >= 1
    program.refused("generate", "--engine", engine.endpoint, "--tokens", "3,11", "--least-version", "run@9")
    assert scrape(engine).value("engine_refusals_total", code="failed_precondition") == 1
    assert scrape(engine).sum("engine_refusals_total") == 1
    the_page_has_these(scrape(relay), scrape(publisher))


def the_page_has_these(*scrapes):
    """docs/operations.md has a row for each family, with its kind and labels, and no other."""
    listed = {name: (kind, set(re.findall(r"`([a-z]+)`", labels)))
              for name, kind, labels in re.findall(r"^\| `(layercast_[a-z_]+)` \| (\w+) \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)}
    told = {name: kind for said in scrapes for name, kind in said.kinds.items() if name.startswith("layercast_")}
    assert told == {name: kind for name, (kind, _) in listed.items()}
    for said in scrapes:
        for name, labels in said.samples:
            family = re.sub(r"_(bucket|sum|count)$", "", name) if name not in said.kinds else name
            if family in listed:
                assert {label for label, _ in labels} - {"le"} == listed[family][1], name


def test_mixed_layers_of_a_stream_are_counted(program, start, serve, checkpoint):
    publisher = start("publish", "--model", checkpoint("llama", "b"), "--mode", "stream", "--order", "shuffled:3", *METRICS)
    engine = serve()
    report = program.reload(engine, "--publisher", publisher.endpoint)["report"]
    assert scrape(engine).value("engine_out_of_order_total") == len(report["out_of_order"]) > 0
    assert metrics_once_closed(publisher).value("publisher_taken_bytes_total", peer="0") == report["bytes"]
    assert metrics_once_closed(publisher).value("publisher_syncs_total", peer="0") == 1


def test_an_address_is_bound_or_it_is_said_why_not(program, checkpoint):
    publish = ("publish", "--model", checkpoint("llama", "a"), "--metrics-bind")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"metrics address '{address}': it cannot be bound" in program.refused(*publish, address)["message"]
    refused = program.refused(*publish, "0.0.0.0:0")
    assert refused["code"] == "invalid_argument" and "--metrics-open" in refused["message"]
    serve = ("serve", "--model", checkpoint("llama", "a"), "--metrics-bind", "0.0.0.0:0")
    assert "--metrics-open" in program.refused(*serve)["message"]


@pytest.mark.parametrize("open_", ["--metrics-open", "--insecure"])
def test_who_says_so_serves_metrics_to_all(open_, start, checkpoint):
    publisher = start("publish", "--model", checkpoint("llama", "a"), "--metrics-bind", "0.0.0.0:0", open_)
    assert publisher.ready["metrics"].startswith("0.0.0.0:")
    assert scrape(publisher).value("publisher_published_total") == 1


def test_who_does_not_ask_for_metrics_has_none(start, checkpoint):
    assert start("publish", "--model", checkpoint("llama", "a")).ready["metrics"] is None

"""Reads the file of `reload --trace`, as Perfetto would, and holds it to what such a file must be."""

import collections
import dataclasses
import json
import pathlib


NEAR = 1e-3  # a nanosecond, by which numbers that stand for the same time may be apart


@dataclasses.dataclass(frozen=True)
class Span:
    process: str
    lane: str
    kind: str
    name: str
    begin: float  # microseconds, as all times here
    end: float
    count: int
    busy: float

    def __contains__(self, other):
        return self.begin <= other.begin + NEAR and other.end <= self.end + NEAR

    def before(self, other):
        return self.end <= other.begin + NEAR


def _spans(event, end):
    arguments = event["args"]
    return {"kind": event["cat"], "name": event["name"], "begin": event["ts"], "end": end,
            "count": arguments.get("spans", 1),
            "busy": arguments["busy_ms"] * 1000 if "busy_ms" in arguments else end - event["ts"]}


class Timeline:
    """Each event has its fields, what begins ends, and what shares a thread lies apart or within one another."""

    def __init__(self, path):
        trace = json.loads(pathlib.Path(path).read_text())
        self.facts = trace["otherData"]
        self.processes, self.facts_of, lanes, open_spans, found = {}, {}, {}, {}, []
        for event in trace["traceEvents"]:
            match event["ph"]:
                case "M":
                    self._take_metadata(event, lanes)
                case "X":
                    assert event["dur"] >= 0, event
                    found.append((event, event["ts"] + event["dur"]))
                case "b":
                    assert event["id"] not in open_spans, event
                    open_spans[event["id"]] = event
                case "e":
                    begun = open_spans.pop(event["id"])
                    assert (begun["name"], begun["cat"]) == (event["name"], event["cat"])
                    found.append((begun, event["ts"]))
                case phase:
                    raise AssertionError(f"what is {phase}?")
        assert not open_spans
        self.spans = [Span(self.processes[event["pid"]], lanes[event["pid"], event["tid"]], **_spans(event, end))
                      for event, end in found]
        self._assert_nested(trace["traceEvents"])

    def _take_metadata(self, event, lanes):
        if event["name"] == "process_name":
            assert event["pid"] not in self.processes, "a process is there twice"
            self.processes[event["pid"]] = event["args"]["name"]
        elif event["name"] == "process_labels":
            self.facts_of[self.processes[event["pid"]]] = event["args"]["facts"]
        elif event["name"] == "thread_name":
            lanes[event["pid"], event["tid"]] = event["args"]["name"]

    @staticmethod
    def _assert_nested(events):
        threads = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                threads[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["ts"] + event["dur"]))
        for spans in threads.values():
            around = []
            for begin, _, end in sorted(spans):
                while around and around[-1] <= begin + NEAR:
                    around.pop()
                assert not around or end <= around[-1] + NEAR, "two spans of a thread overlap"
                around.append(end)

    def of(self, process, lane=None, kind=None):
        return [span for span in self.spans
                if span.process == process and lane in (None, span.lane) and kind in (None, span.kind)]

    def one(self, process, lane, kind):
        spans = self.of(process, lane, kind)
        assert len(spans) == 1, spans
        return spans[0]

    def busy_ms(self, process, stage):
        return sum(span.busy for span in self.of(process, stage, "stage")) / 1000

"""What a process tells Prometheus, read as Prometheus reads it: the text format, version 0.0.4."""

import re
import urllib.request

_SAMPLE = re.compile(r"^([a-z_][a-z0-9_]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')


class Metrics:
    """One scrape."""

    def __init__(self, text):
        self.text = text
        self.kinds, self.helps, self.samples = {}, {}, {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split(" ")[2:]
                self.kinds[name] = kind
            elif line.startswith("# HELP "):
                _, _, name, help_ = line.split(" ", 3)
                self.helps[name] = help_
            elif line:
                name, labels, value = _SAMPLE.match(line).groups()
                key = (name, frozenset(_LABEL.findall(labels or "")))
                assert key not in self.samples, f"twice: {line}"
                self.samples[key] = float(value)

    def value(self, name, **labels):
        return self.samples["layercast_" + name, frozenset(labels.items())]

    def all(self, name):
        """The labels of each value of a name, as dicts, and the values."""
        return [(dict(labels), value) for (of, labels), value in self.samples.items() if of == "layercast_" + name]

    def sum(self, name, **labels):
        """Of all values whose labels have these among them."""
        return sum(value for has, value in self.all(name) if labels.items() <= has.items())


def scrape(daemon):
    """The metrics of a daemon that was started with --metrics-bind."""
    with urllib.request.urlopen(f"http://{daemon.ready['metrics']}/metrics", timeout=20) as answer:
        return Metrics(answer.read().decode())

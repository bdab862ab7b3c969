"""A collector of OpenTelemetry's that takes traces over HTTP, in JSON. It refuses what the protocol's own schema does not
know."""

import base64
import http.server
import json
import threading

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def _with_ids_as_protobuf_has_them(value):
    """OTLP has ids in hexadecimal digits, where the JSON of protocol buffers has base64."""
    if isinstance(value, list):
        return [_with_ids_as_protobuf_has_them(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: base64.b64encode(bytes.fromhex(one)).decode() if key in IDS else _with_ids_as_protobuf_has_them(one)
            for key, one in value.items()}


def _expect_lengths(span):
    assert len(span.trace_id) == IDS["traceId"] and len(span.span_id) == IDS["spanId"]
    assert len(span.parent_span_id) in (0, IDS["parentSpanId"])
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano


class Collector:
    """with Collector() as collector: collector.url, collector.requests"""

    def __init__(self, status=200):
        self.requests, self.headers, self.tries, self.wrong = [], [], 0, []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                collector.tries += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if status == 200:
                    collector._take(self, body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _take(self, handler, body):
        try:
            assert handler.path == "/v1/traces", handler.path
            assert handler.headers["Content-Type"] == "application/json"
            request = ExportTraceServiceRequest()
            json_format.ParseDict(_with_ids_as_protobuf_has_them(json.loads(body)), request)
            for resource in request.resource_spans:
                for span in resource.scope_spans[0].spans:
                    _expect_lengths(span)
            self.headers.append(handler.headers)
            self.requests.append(request)
        except Exception as error:  # it is the test's thread that must fail
            self.wrong.append(repr(error))

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def resources(self):
        """(service, spans) of all that has come."""
        assert not self.wrong, self.wrong
        return [(next(one.value.string_value for one in resource.resource.attributes if one.key == "service.name"),
                 list(resource.scope_spans[0].spans))
                for request in list(self.requests) for resource in request.resource_spans]

    def services(self):
        return sorted(service for service, _ in self.resources())


def root_of(spans):
    """The one span that is the parent of all others."""
    inside = {span.parent_span_id for span in spans}
    (root,) = [span for span in spans if span.span_id in inside]
    assert all(span.parent_span_id == root.span_id for span in spans if span is not root)
    return root

#include "src/trace/otlp/otlp_target.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::string_view kTraces = "/v1/traces";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "%20" is a blank.
std::string Decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] != '%' || i + 2 >= text.size() || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
      decoded += text[i];
      continue;
    }
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

// "name=value,name=value", as in W3C's baggage.
std::multimap<std::string, std::string> Headers(std::string_view text) {
  std::multimap<std::string, std::string> headers;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    const auto trimmed = [](std::string_view of) {
      const std::size_t first = of.find_first_not_of(' ');
      return first == std::string_view::npos ? std::string_view()
                                             : of.substr(first, of.find_last_not_of(' ') - first + 1);
    };
    headers.emplace(trimmed(one.substr(0, equals)), Decoded(trimmed(one.substr(equals + 1))));
  }
  return headers;
}

}  // namespace

std::optional<OtlpTarget> OtlpTarget::From(const std::string& endpoint) {
  std::string url = endpoint.empty() ? Variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") : "";
  if (url.empty()) {
    url = endpoint.empty() ? Variable("OTEL_EXPORTER_OTLP_ENDPOINT") : endpoint;
    if (url.empty()) return std::nullopt;
    if (url.ends_with('/') && !url.ends_with("://")) url.pop_back();
    url += kTraces;
  }
  const std::size_t scheme = url.find("://");
  const std::size_t path = scheme == std::string::npos ? scheme : url.find('/', scheme + 3);
  const std::string_view name = std::string_view(url).substr(0, scheme);
  if (path == std::string::npos || path == scheme + 3 || (name != "http" && name != "https")) {
    throw Error(ErrorCode::kInvalidArgument,
                "where traces are sent: expected a URL such as http://localhost:4318, got '" +
                    (endpoint.empty() ? url : endpoint) + "'");
  }
  return OtlpTarget{url.substr(0, path), url.substr(path), Headers(Variable("OTEL_EXPORTER_OTLP_HEADERS"))};
}

}  // namespace layercast

#include "src/net/http/http_rules.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <string_view>

namespace layercast {
namespace {

constexpr std::size_t kMostPathBytes = 256;
constexpr std::string_view kBearer = "bearer ";

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return lower;
}

// Takes the same time wherever they differ.
bool SameHash(const Hash& a, const Hash& b) {
  std::byte differs{};
  for (std::size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
  return differs == std::byte{};
}

bool HasKey(const std::string& authorization, const Hash& key) {
  if (Lower(authorization.substr(0, kBearer.size())) != kBearer) return false;
  return SameHash(HttpKeyHash(authorization.substr(kBearer.size())), key);
}

bool IsThisHost(const std::string& host_and_port) {
  const std::size_t colon = host_and_port.rfind(':');
  const bool port = colon != std::string::npos && host_and_port.find(']', colon) == std::string::npos;
  const std::string host = Lower(host_and_port.substr(0, port ? colon : std::string::npos));
  const bool of_127 = host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || of_127;
}

bool IsJson(const std::string& content_type) {
  return Lower(content_type.substr(0, content_type.find(';'))) == "application/json";
}

bool IsLonger(const std::string& content_length, std::size_t most) {
  if (content_length.empty()) return false;
  std::uint64_t bytes = 0;
  const char* const end = content_length.data() + content_length.size();
  const auto [stop, error] = std::from_chars(content_length.data(), end, bytes);
  return error != std::errc() || stop != end || bytes > most;
}

}  // namespace

Hash HttpKeyHash(const std::string& key) { return HashOf(std::as_bytes(std::span(key))); }

std::optional<HttpAnswer> RefusalOf(const HttpHead& head, const HttpRules& rules) {
  if (rules.local && !IsThisHost(head.host)) {
    return ErrorAnswer(403, "permission_denied",
                       "Host: expected localhost or a loopback address, because no key is asked for here");
  }
  const bool open = std::ranges::find(rules.open_paths, head.path) != rules.open_paths.end();
  if (rules.key && !open && !HasKey(head.authorization, *rules.key)) {
    return ErrorAnswer(401, "invalid_api_key", "expected the key of this server: Authorization: Bearer KEY");
  }
  if (head.path.size() > kMostPathBytes) return ErrorAnswer(404, "not_found", "there is nothing at so long a path");
  if (head.method == "GET" || head.method == "HEAD") return std::nullopt;
  if (head.method != "POST") {
    HttpAnswer answer = ErrorAnswer(405, "invalid_argument", "expected GET or POST");
    answer.headers.emplace_back("Allow", "GET, POST");
    return answer;
  }
  if (!IsJson(head.content_type)) {  // which no page of another site can send unasked
    return ErrorAnswer(415, "invalid_argument", "Content-Type: expected application/json");
  }
  if (!head.content_encoding.empty()) return ErrorAnswer(415, "unsupported", "Content-Encoding: expected none");
  if (IsLonger(head.content_length, rules.most_body_bytes)) {
    return ErrorAnswer(413, "resource_exhausted",
                       "a body: expected at most " + std::to_string(rules.most_body_bytes) + " bytes");
  }
  return std::nullopt;
}

}  // namespace layercast

#include "src/net/http/http_answer.h"

namespace layercast {
namespace {

// OpenAI's names for what a status means.
const char* TypeOf(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

std::string HttpText(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpAnswer JsonAnswer(const nlohmann::ordered_json& json, int status) {
  return {.status = status, .body = HttpText(json)};
}

nlohmann::ordered_json HttpErrorJson(int status, std::string_view code, const std::string& message) {
  return {{"error", {{"message", message}, {"type", TypeOf(status)}, {"param", nullptr}, {"code", code}}}};
}

HttpAnswer ErrorAnswer(int status, std::string_view code, const std::string& message) {
  HttpAnswer answer = JsonAnswer(HttpErrorJson(status, code, message), status);
  if (status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 429 || status == 503) answer.headers.emplace_back("Retry-After", "1");
  return answer;
}

}  // namespace layercast

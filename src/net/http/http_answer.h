// What is asked over HTTP, and what is answered.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/net/http/http_connection.h"

namespace layercast {

// Value. The connection is there until the answer, its stream included, is sent.
struct HttpRequest {
  std::string method;  // "GET" or "POST"
  std::string path;    // without a query
  std::string body;    // of POST
  HttpConnection& connection;
};

// Value.
struct HttpAnswer {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
  // Instead of a body: gives piece after piece, nothing at the end. It may block as long as the connection is awaited.
  std::function<std::optional<std::string>()> next{};
};

// As text, whatever bytes the names in it have.
std::string HttpText(const nlohmann::ordered_json& json);
HttpAnswer JsonAnswer(const nlohmann::ordered_json& json, int status = 200);
// In the form in which clients of OpenAI's expect it: {"error": {"message", "type", "param", "code"}}.
nlohmann::ordered_json HttpErrorJson(int status, std::string_view code, const std::string& message);
HttpAnswer ErrorAnswer(int status, std::string_view code, const std::string& message);

}  // namespace layercast

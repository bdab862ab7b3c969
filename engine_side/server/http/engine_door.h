// What an engine answers over HTTP: completions as OpenAI's API has them, which models there are, whether it serves,
// and its dashboard (docs/engine.md). Used by the engine's service.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine_side/server/http/dashboard.h"
#include "engine_side/server/http/engine_behind.h"
#include "src/net/http/http_server.h"

namespace layercast {

// Value.
struct EngineDoorOptions {
  std::string bind{};      // "HOST:PORT"; empty: nowhere
  std::string key_file{};  // HttpServerOptions
  bool dashboard = false;
};

// Resource; thread-safe.
class EngineDoor {
 public:
  static constexpr std::size_t kMostCompletions = 256;  // under way

  // Throws what HttpServer throws.
  EngineDoor(const EngineDoorOptions& options, EngineBehind engine);
  EngineDoor(const EngineDoor&) = delete;
  EngineDoor& operator=(const EngineDoor&) = delete;

  std::string address() const { return server_->address(); }
  // A sync has ended so: a Reloader's outcome.
  void Synced(const Json& outcome);

 private:
  HttpAnswer Answer(const HttpRequest& request);
  HttpAnswer Route(const HttpRequest& request);
  HttpAnswer Health() const;
  HttpAnswer Models() const;
  HttpAnswer Model(const std::string& id) const;
  HttpAnswer Complete(const HttpRequest& request);

  const EngineBehind engine_;
  const std::string base_;                   // the model's name
  const std::uint64_t began_;                // seconds since 1970
  std::atomic<std::size_t> completions_{0};  // under way
  std::unique_ptr<Dashboard> dashboard_;     // null: there is none
  std::unique_ptr<HttpServer> server_;       // the last: its threads use all of these
};

}  // namespace layercast

#include "engine_side/server/http/engine_door.h"

#include <filesystem>
#include <utility>

#include "engine_side/server/http/completion_stream.h"
#include "engine_side/server/http/http_errors.h"
#include "layercast/error.h"
#include "src/base/since_1970.h"

namespace layercast {
namespace {

constexpr const char* kModels = "/v1/models";

// The name of a checkpoint's folder, which people know it by.
std::string NameOf(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// Whether an engine of that status generates: also while it takes another version.
bool Generates(const Json& status) { return status.at("asleep").is_null() && !status.at("version").is_null(); }

ServedModels ServedBy(const std::string& base, const Json& status) {
  ServedModels served{.base = base, .adapters = {}};
  for (const Json& adapter : status.at("adapters")) {
    if (adapter.at("state") == "served") served.adapters.push_back(adapter.at("name").get<std::string>());
  }
  return served;
}

HttpServerOptions ServerOptions(const EngineDoorOptions& options, bool insecure) {
  HttpServerOptions server{.bind = options.bind, .key_file = options.key_file, .insecure = insecure};
  server.open_paths = {"/health"};
  if (options.dashboard) server.open_paths.emplace_back(Dashboard::kPage);  // which asks for the key itself
  return server;
}

}  // namespace

EngineDoor::EngineDoor(const EngineDoorOptions& options, EngineBehind engine)
    : engine_(std::move(engine)), base_(NameOf(engine_.model)), began_(MillisecondsSince1970() / 1000) {
  if (options.dashboard) dashboard_ = std::make_unique<Dashboard>(engine_);
  server_ = std::make_unique<HttpServer>(ServerOptions(options, engine_.insecure),
                                         [this](const HttpRequest& request) { return Answer(request); });
}

void EngineDoor::Synced(const Json& outcome) {
  if (dashboard_ != nullptr) dashboard_->Synced(outcome);
}

HttpAnswer EngineDoor::Answer(const HttpRequest& request) {
  try {
    return Route(request);
  } catch (const std::exception& thrown) {
    return HttpAnswerOf(ErrorOfCall(thrown), Generates(engine_.status()));
  }
}

HttpAnswer EngineDoor::Route(const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == "/v1/completions") {
    return request.method == "POST" ? Complete(request) : ErrorAnswer(405, "invalid_argument", "expected POST");
  }
  if (request.method == "GET" && path == "/health") return Health();
  if (request.method == "GET" && path == kModels) return Models();
  if (request.method == "GET" && path.starts_with(std::string(kModels) + "/")) {
    return Model(path.substr(std::string(kModels).size() + 1));
  }
  if (request.method == "GET" && dashboard_ != nullptr && path == Dashboard::kPage) return dashboard_->Page();
  if (request.method == "GET" && dashboard_ != nullptr && path == Dashboard::kStatus) return dashboard_->Status();
  throw Error(ErrorCode::kNotFound, "this engine has nothing at " + request.method + " of this path");
}

HttpAnswer EngineDoor::Health() const {
  const Json status = engine_.status();
  return JsonAnswer({{"status", status.at("state")}}, Generates(status) ? 200 : 503);
}

HttpAnswer EngineDoor::Models() const {
  const Json status = engine_.status();
  const auto model = [&](const std::string& id, const Json& version, const Json& parent) {
    return Json{{"id", id},          {"object", "model"},
                {"created", began_}, {"owned_by", "layercast"},
                {"parent", parent},  {"max_model_len", engine_.max_length},
                {"version", version}};
  };
  Json models = Json::array({model(base_, status.at("version"), nullptr)});
  for (const Json& adapter : status.at("adapters")) {
    if (adapter.at("state") == "served") models.push_back(model(adapter.at("name"), adapter.at("version"), base_));
  }
  return JsonAnswer({{"object", "list"}, {"data", std::move(models)}});
}

HttpAnswer EngineDoor::Model(const std::string& id) const {
  const Json models = Json::parse(Models().body);
  for (const Json& model : models.at("data")) {
    if (model.at("id") == id) return JsonAnswer(model);
  }
  throw Error(ErrorCode::kNotFound, "there is no model of that name here");
}

HttpAnswer EngineDoor::Complete(const HttpRequest& request) {
  // Held as long as the completion is under way, by whoever answers it.
  const std::shared_ptr<void> seat(nullptr, [this](void*) { --completions_; });
  if (++completions_ > kMostCompletions) {
    throw Error(ErrorCode::kResourceExhausted,
                "expected at most " + std::to_string(kMostCompletions) + " completions under way, there are as many");
  }
  const Json status = engine_.status();
  if (!Generates(status)) {
    throw Error(ErrorCode::kUnavailable,
                "this engine generates nothing now: it is " + status.at("state").get<std::string>());
  }
  const CompletionRequest asked = CompletionRequestFrom(request.body, ServedBy(base_, status));
  const auto pending = std::make_shared<PendingCompletion>();
  engine_.generate(asked.generate, pending->Reply(), asked.stream ? pending->News() : SequenceNews());
  const auto stream = std::make_shared<CompletionStream>(asked, pending, request.connection, seat);
  return asked.stream ? CompletionStream::InPieces(stream) : stream->Whole();
}

}  // namespace layercast

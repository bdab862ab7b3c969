#include "engine_side/server/http/dashboard.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include "engine_side/server/http/dashboard_page.h"
#include "src/base/hash/sha256.h"
#include "src/base/since_1970.h"
#include "src/control/watch/peers_json.h"

namespace layercast {
namespace {

// What stands between the first `open` and the next `close`.
std::string_view Between(std::string_view text, std::string_view open, std::string_view close) {
  const std::size_t begin = text.find(open) + open.size();
  return text.substr(begin, text.find(close, begin) - begin);
}

std::string SourceOf(std::string_view text) {
  return "'sha256-" + ToBase64(HashOf(std::as_bytes(std::span(text)))) + "'";
}

// The page's own script and style, and no other; its own server, and nothing else.
std::string PolicyOf(std::string_view page) {
  return "default-src 'none'; script-src " + SourceOf(Between(page, "<script>", "</script>")) + "; style-src " +
         SourceOf(Between(page, "<style>", "</style>")) +
         "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

// Null: the system does not say.
Json ResidentBytes(int pid) {
  std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  if (!(statm >> all >> resident)) return nullptr;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Json MemoryOf(const Json& status) {
  Json memory = Json::array({{{"process", "engine"}, {"pid", status.at("pid")}}});
  for (const Json& pid : status.at("pids")) {
    memory.push_back({{"process", "rank " + std::to_string(memory.size() - 1)}, {"pid", pid}});
  }
  for (Json& one : memory) one["resident_bytes"] = ResidentBytes(one["pid"].get<int>());
  return memory;
}

Json CountsOf(const EngineLook& look) {
  Json refusals = Json::object();
  for (const auto& [code, count] : look.refusals) refusals[std::string(ErrorCodeName(code))] = count;
  return {{"sequences", {{"running", look.generator.running}, {"waiting", look.generator.waiting}}},
          {"calls_waiting", look.calls_waiting},
          {"rank_restarts", look.restarts},
          {"refusals", std::move(refusals)}};
}

}  // namespace

Dashboard::Dashboard(const EngineBehind& engine) : engine_(engine), policy_(PolicyOf(kDashboardPage)) {}

void Dashboard::Synced(const Json& outcome) {
  const Json& report = outcome.at("report");
  Json sync = {{"ended_ms", MillisecondsSince1970()},
               {"ok", outcome.at("ok")},
               {"version", outcome.at("ok").get<bool>() ? outcome.at("version") : Json()},
               {"error", outcome.at("error")}};
  for (const char* field : {"total_ms", "stage_ms", "bytes", "channel"}) {
    sync[field] = report.is_object() ? report.at(field) : Json();
  }
  const std::lock_guard lock(mutex_);
  syncs_.push_back(std::move(sync));
  if (syncs_.size() > kSyncs) syncs_.pop_front();
}

HttpAnswer Dashboard::Page() const {
  return {.type = "text/html; charset=utf-8",
          .body = std::string(kDashboardPage),
          .headers = {{"Content-Security-Policy", policy_}, {"Referrer-Policy", "no-referrer"}}};
}

// Of the publisher that is followed now. The first look begins to ask it.
std::vector<PeerState> Dashboard::Publishers() {
  const std::string followed = engine_.followed();
  const std::lock_guard lock(mutex_);
  if (followed != watched_) {
    watch_.reset();
    watched_ = followed;
    if (!followed.empty())
      watch_ = std::make_unique<PeerWatch>(std::vector<std::string>(), std::vector{followed}, engine_.keys);
  }
  return watch_ == nullptr ? std::vector<PeerState>() : watch_->Look();
}

HttpAnswer Dashboard::Status() {
  const EngineLook look = engine_.look();
  std::vector<PeerState> peers = {
      {.endpoint = engine_.endpoint, .is_engine = true, .engine = look.status, .asked = true}};
  for (PeerState& publisher : Publishers()) peers.push_back(std::move(publisher));
  Json status = PeersToJson(peers);
  status["now_ms"] = MillisecondsSince1970();
  status["memory"] = MemoryOf(look.status);
  status.update(CountsOf(look));
  const std::lock_guard lock(mutex_);
  status["syncs"] = syncs_;
  return JsonAnswer(status);
}

}  // namespace layercast

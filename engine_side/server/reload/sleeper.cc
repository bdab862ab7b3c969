#include "engine_side/server/reload/sleeper.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kSleepTimeout{300'000};
constexpr std::array<const char*, 2> kTags = {"kv_cache", "weights"};

std::set<std::string> TagsFrom(const Json& params) {
  const auto tags = params.value("tags", std::set<std::string>(kTags.begin(), kTags.end()));
  for (const std::string& tag : tags) {
    if (std::ranges::find(kTags, tag) != kTags.end()) continue;
    throw Error(ErrorCode::kInvalidArgument, "tags: expected some of weights, kv_cache, got '" + tag + "'");
  }
  if (tags.empty()) throw Error(ErrorCode::kInvalidArgument, "tags: expected some of weights, kv_cache, got none");
  return tags;
}

SleepLevel LevelFrom(const Json& params) {
  const auto level = params.value("level", 1);
  if (level == 1) return SleepLevel::kKeep;
  if (level == 2) return SleepLevel::kDiscard;
  throw Error(ErrorCode::kInvalidArgument, "level: expected 1 or 2, got " + std::to_string(level));
}

// Sequences have nowhere to wait: their caches go with the memory.
PauseMode ModeFrom(const Json& params) {
  const PauseMode mode = PauseModeNamed(params.value("pause_mode", "wait"));
  if (mode != PauseMode::kKeep) return mode;
  throw Error(ErrorCode::kInvalidArgument, "pause_mode of a sleep: expected wait or abort, got 'keep'");
}

Deadline DeadlineFrom(const Json& params) {
  return Deadline::After(MillisecondsFrom(params, "timeout_ms", kSleepTimeout));
}

std::set<std::string> Without(std::set<std::string> tags, const std::set<std::string>& these) {
  std::erase_if(tags, [&](const std::string& tag) { return these.contains(tag); });
  return tags;
}

// The bytes that all ranks gave back, by kind of memory.
Json Sums(const std::vector<Json>& of_ranks) {
  Json sums = Json::object();
  for (const Json& rank : of_ranks) {
    for (const auto& [kind, bytes] : rank.items()) {
      sums[kind] = sums.value(kind, std::uint64_t{0}) + bytes.get<std::uint64_t>();
    }
  }
  return sums;
}

}  // namespace

Json Sleeper::Sleep(const Json& params) {
  const std::set<std::string> tags = Without(TagsFrom(params), asleep_);
  const SleepLevel level = LevelFrom(params);
  const bool discards = tags.contains("weights") && level == SleepLevel::kDiscard;
  const Deadline deadline = DeadlineFrom(params);
  Json given_back = Json::object();
  const auto on_ranks = [&] {
    generation_ = ranks_.generation();
    try {
      given_back = Sums(ranks_.Call("sleep", {{"tags", tags}, {"level", level}}, deadline));
    } catch (...) {
      ranks_.Try("wake_up", {{"tags", tags}}, deadline);
      if (discards) reloader_.LoseWeights("it was to sleep at level 2");
      throw;
    }
    if (discards) reloader_.LoseWeights("it slept at level 2");
    if (tags.contains("weights")) {
      const std::lock_guard lock(mutex_);
      level_ = level;
    }
    std::set<std::string> all = tags;
    all.insert(asleep_.begin(), asleep_.end());
    Settle(std::move(all));
  };
  if (!tags.empty()) generator_.StandStill(ModeFrom(params), on_ranks, deadline);
  log::info("the engine is {}: {} bytes given back", Words(), given_back.dump());
  return {{"asleep", Status()}, {"given_back", std::move(given_back)}};
}

Json Sleeper::WakeUp(const Json& params) {
  WakeRanks(TagsFrom(params), DeadlineFrom(params));
  log::info("the engine is {}", Words());
  return {{"asleep", Status()}, {"version", VersionToJson(reloader_.version())}};
}

void Sleeper::WakeToReload() {
  if (!asleep_.contains("weights")) return;
  if (level_ == SleepLevel::kKeep) ExpectAwake("a reload");
  WakeRanks({"weights"}, Deadline::After(kSleepTimeout));
}

// Those ranks that have woken up go back to sleep if others cannot.
void Sleeper::WakeRanks(const std::set<std::string>& tags, Deadline deadline) {
  std::set<std::string> asleep = asleep_;
  std::erase_if(asleep, [&](const std::string& tag) { return !tags.contains(tag); });
  if (asleep.empty()) return;
  try {
    ranks_.Call("wake_up", {{"tags", asleep}}, deadline);
  } catch (...) {
    ranks_.Try("sleep", {{"tags", asleep}, {"level", level_}}, deadline);
    throw;
  }
  Settle(Without(asleep_, asleep));
}

void Sleeper::KeepAsleep() {
  if (asleep_.empty() || ranks_.generation() == generation_) return;
  generation_ = ranks_.generation();
  if (!ranks_.weights_outlive_ranks()) {
    const std::lock_guard lock(mutex_);
    level_ = SleepLevel::kDiscard;
  }
  for (const RankAnswer& answer :
       ranks_.Try("sleep", {{"tags", asleep_}, {"level", level_}}, Deadline::After(kSleepTimeout))) {
    if (answer.error) log::error("a rank that was started anew does not sleep: {}", answer.error->what());
  }
}

void Sleeper::ExpectAwake(const std::string& call) const {
  if (asleep_.empty()) return;
  throw Error(ErrorCode::kFailedPrecondition, call + ": the engine is " + Words() + ": wake it up first");
}

void Sleeper::Settle(std::set<std::string> tags) {
  {
    const std::lock_guard lock(mutex_);
    asleep_ = std::move(tags);
  }
  generator_.SetAsleep(asleep_.empty() ? "" : Words() + ": wake it up first");
}

// "asleep (weights at level 2, kv_cache)", or "awake".
std::string Sleeper::Words() const {
  if (asleep_.empty()) return "awake";
  std::string words;
  for (const std::string& tag : asleep_) {
    words += (words.empty() ? "" : ", ") + tag;
    if (tag == "weights") words += " at level " + std::to_string(static_cast<int>(level_));
  }
  return "asleep (" + words + ")";
}

Json Sleeper::Status() const {
  const std::lock_guard lock(mutex_);
  if (asleep_.empty()) return nullptr;
  return {{"level", asleep_.contains("weights") ? Json(level_) : Json()}, {"tags", asleep_}};
}

}  // namespace layercast

#include "engine_side/server/rank/rank_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace layercast {

RankMemory::RankMemory(std::unique_ptr<SleepableMemory> weights, std::unique_ptr<SleepableMemory> caches, Files files,
                       FailPoints failpoints)
    : weights_(std::move(weights)),
      caches_(std::move(caches)),
      staging_(std::move(files.staging)),
      host_adapters_(std::move(files.host_adapters)),
      failpoints_(std::move(failpoints)) {}

Json RankMemory::Sleep(const Json& tags, SleepLevel level) {
  Json given_back = Json::object();
  if (HasTag(tags, "weights")) {
    if (!weights_->asleep()) weights_level_ = level;
    given_back["weights"] = weights_->Sleep(level);
    given_back["staging"] = staging_.Sleep(SleepLevel::kDiscard);  // a copy of weights that are served already
  }
  if (HasTag(tags, "kv_cache")) {
    given_back["kv_cache"] = caches_ != nullptr ? caches_->Sleep(SleepLevel::kDiscard) : 0;
  }
  return given_back;
}

void RankMemory::Wake(const Json& tags) {
  struct Asleep {
    SleepableMemory* memory;
    SleepLevel level;
  };
  std::vector<Asleep> all;
  if (HasTag(tags, "weights")) all = {{weights_.get(), weights_level_}, {&staging_, SleepLevel::kDiscard}};
  if (HasTag(tags, "kv_cache") && caches_ != nullptr) all.push_back({caches_.get(), SleepLevel::kDiscard});
  std::erase_if(all, [](const Asleep& each) { return !each.memory->asleep(); });
  std::size_t woken = 0;
  try {
    for (; woken < all.size(); ++woken) {
      failpoints_.Hit("wake");
      all[woken].memory->Wake();
    }
  } catch (...) {
    for (std::size_t i = 0; i < woken; ++i) all[i].memory->Sleep(all[i].level);
    throw;
  }
}

bool HasTag(const Json& tags, const char* tag) { return std::ranges::find(tags, tag) != tags.end(); }

}  // namespace layercast

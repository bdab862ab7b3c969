#include "engine_side/server/group/rank_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine_side/server/group/memory_file.h"
#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kGrace{2000};

}  // namespace

RankGroup::RankGroup(const RankGroupOptions& options)
    : options_(options), files_(options.files ? options.files->ToDescriptor() : UniqueFd()) {
  for (int rank = 0; rank < parallel().engine_size(); ++rank) {
    const std::string suffix = "-rank-" + std::to_string(rank);
    memory_.push_back(
        {MemoryFile::Create("layercast-weights" + suffix), MemoryFile::Create("layercast-staging" + suffix),
         MemoryFile::Create("layercast-adapters" + suffix), MemoryFile::Create("layercast-version" + suffix)});
  }
  ranks_ = Start(true);
}

RankGroup::~RankGroup() { End(); }

void RankGroup::End() {
  Ranks last;  // ended after the lock is released, since that takes time
  {
    const std::lock_guard lock(mutex_);
    if (!ended_.request_stop()) return;  // it was requested before
    last = ranks_;
  }
  const Deadline grace = Deadline::After(kGrace);
  for (const auto& rank : *last) rank->End(grace);
}

RankGroup::Ranks RankGroup::Start(bool keep_failpoints) {
  const int size = parallel().engine_size();
  if (size > 1) segment_ = std::make_unique<CollectiveSegment>(CollectiveSegment::Create(size));
  auto ranks = std::make_shared<std::vector<std::unique_ptr<RankHandle>>>();
  for (int rank = 0; rank < size; ++rank) {
    const Memory& memory = memory_[static_cast<std::size_t>(rank)];
    RankLaunch launch;
    launch.program = options_.program;
    launch.rank = rank;
    launch.keep_failpoints = keep_failpoints;
    if (options_.on_rank_lost) launch.on_lost = [this, rank](const Error& why) { options_.on_rank_lost(rank, why); };
    launch.arguments = {"--options", ToArgument(options_),
                        "--tp-rank", std::to_string(rank % options_.tp_size),
                        "--pp-rank", std::to_string(rank / options_.tp_size)};
    launch.descriptors = {{"--weights-fd", memory.weights.get()},
                          {"--staging-fd", memory.staging.get()},
                          {"--adapters-fd", memory.adapters.get()},
                          {"--version-fd", memory.version.get()}};
    if (files_) launch.descriptors.emplace_back("--model-files-fd", files_.get());
    if (segment_ != nullptr) launch.descriptors.emplace_back("--collective-fd", segment_->fd());
    ranks->push_back(std::make_unique<RankHandle>(launch));
  }
  return ranks;
}

RankGroup::Ranks RankGroup::ranks(std::optional<std::uint64_t> generation) const {
  const std::lock_guard lock(mutex_);
  if (generation && *generation != generation_)
    throw Error(ErrorCode::kUnavailable, "the ranks were started anew meanwhile");
  return ranks_;
}

std::vector<RankAnswer> RankGroup::Try(const std::string& method, const Json& params, Deadline deadline,
                                       const HearAnswer& heard) {
  const Ranks held = ranks();  // those that are asked, though others may be started in their place meanwhile
  std::vector<RankAnswer> answers = TryAll(*held, method, params, deadline, heard);
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].error) answers[rank].progress = (*held)[rank]->progress();
  }
  return answers;
}

// Ignores the ranks' answers: the calls that are given up answer by themselves, and a rank that is gone answers
// nothing.
void RankGroup::TellToCancel(const Json& params) {
  const Ranks held = ranks();
  for (const auto& rank : *held) rank->Call("cancel", params, [](const RankAnswer&) {});
}

void RankGroup::Cancel(std::uint64_t attempt) { TellToCancel({{"attempt", attempt}}); }
void RankGroup::CancelComparison(std::uint64_t comparison) { TellToCancel({{"comparison", comparison}}); }
void RankGroup::CancelAdapterLoad(std::uint64_t load) { TellToCancel({{"adapter_load", load}}); }

std::vector<Json> RankGroup::progress() const {
  std::vector<Json> progress;
  const Ranks held = ranks();
  for (const auto& rank : *held) progress.push_back(rank->progress());
  return progress;
}

std::vector<Json> RankGroup::Call(const std::string& method, const Json& params, Deadline deadline,
                                  std::optional<std::uint64_t> generation) {
  return CallAll(*ranks(generation), method, params, deadline);
}

std::uint64_t RankGroup::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

void RankGroup::RestartIfLost() {
  const std::lock_guard lock(restarting_);
  const Ranks held = ranks();
  if (std::ranges::all_of(*held, [](const auto& rank) { return rank->alive(); })) return;
  RestartAll(held);
}

void RankGroup::Restart(std::uint64_t failed) {
  const std::lock_guard lock(restarting_);
  if (generation() == failed) RestartAll(ranks());
}

// The kernel may take its time to end a process, so mutex_ is not held meanwhile: other threads may use the old ranks.
void RankGroup::RestartAll(const Ranks& old) {
  if (ended()) return;
  log::warn("starting all {} ranks anew{}", memory_.size(), weights_outlive_ranks() ? " over their memory" : "");
  for (const auto& rank : *old) rank->Kill();
  for (const auto& rank : *old) rank->Reap();
  if (!weights_outlive_ranks() && options_.on_weights_lost) options_.on_weights_lost();
  Ranks started;
  try {
    started = Start(false);
  } catch (const std::exception& error) {
    return log::error("starting the ranks anew: {}", error.what());
  }
  const std::lock_guard lock(mutex_);
  if (ended()) return;  // the new processes end here
  ranks_ = std::move(started);
  ++generation_;
}

std::vector<int> RankGroup::pids() const {
  std::vector<int> pids;
  const Ranks held = ranks();
  for (const auto& rank : *held) pids.push_back(rank->pid());
  return pids;
}

}  // namespace layercast

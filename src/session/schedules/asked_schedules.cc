#include "src/session/schedules/asked_schedules.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/session/chunks/chunk_digests.h"

namespace layercast {

void AskedSchedules::Note(const Digest& layout, const Digest& digest, const std::shared_ptr<const Schedule>& schedule) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(of_last_, false) || layout != layout_) asked_.clear();
  layout_ = layout;
  std::erase_if(asked_, [&](const Asked& asked) { return asked.digest == digest; });
  asked_.push_back({digest, schedule});
}

std::vector<AskedSchedules::Asked> AskedSchedules::Take(const Digest& layout) {
  const std::lock_guard lock(mutex_);
  of_last_ = true;
  return layout == layout_ ? asked_ : std::vector<Asked>();
}

DigestsBySchedule AskedSchedules::DigestsOf(const Digest& layout, const Offer& next, WorkerPool& pool) {
  DigestsBySchedule digests;
  if (next.device.kind != Device::Kind::kHost) return digests;
  std::uint64_t left = 0;
  for (const OfferedTensor& tensor : next.tensors) left += 2 * tensor.bytes;
  const std::vector<Asked> asked = Take(layout);
  for (auto next_asked = asked.rbegin(); next_asked != asked.rend(); ++next_asked) {
    const Schedule& schedule = *next_asked->schedule;
    if (schedule.total_bytes() > left) break;
    left -= schedule.total_bytes();
    std::vector<Digest>& of = digests[next_asked->digest];
    of.resize(schedule.chunks().size());
    DigestChunks(schedule, next.tensors, 0, of, pool);
  }
  return digests;
}

}  // namespace layercast

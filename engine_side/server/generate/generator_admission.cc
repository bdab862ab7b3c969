// Which sequences the generator lets begin, and with which adapters they go on.
#include <cstddef>
#include <list>
#include <utility>

#include "engine_side/server/generate/generator.h"
#include "layercast/error.h"

namespace layercast {

// Lets new sequences begin in the order in which they came, unless a call that waits or a pause holds them back. Those
// that wait for their adapters let others by.
void Generator::Admit() {
  std::size_t room = 0;
  {
    const std::lock_guard lock(mutex_);
    settled_ = false;
    if (still_ || pause_.Paused() || !Refusal().empty()) return;
    room = static_cast<std::size_t>(ranks_.max_num_seqs()) - running_.size();
    for (std::size_t i = 0; i < room && !waiting_.empty(); ++i) next_.splice(next_.end(), waiting_, waiting_.begin());
  }
  for (auto at = next_.begin(); at != next_.end() && room > 0;) {
    const auto sequence = at++;
    if (!MayBegin(*sequence)) continue;
    running_.splice(running_.end(), next_, sequence);
    --room;
  }
  running_.remove_if([](const Sequence& sequence) { return sequence.done == nullptr; });
}

// Holds the slot of the sequence's adapter. Returns false if the sequence has to wait for that. If it never gets it,
// the sequence has ended.
bool Generator::MayBegin(Sequence& sequence) {
  if (sequence.request.adapter.empty()) return true;
  try {
    sequence.adapter = adapters_.Admit(sequence.request.adapter, sequence.id);
    if (!sequence.adapter) AwaitAdapter(sequence);
  } catch (const Error& error) {
    sequence.error = error;
    sequence.done(sequence, "failed");
    sequence.done = nullptr;
  }
  if (sequence.done != nullptr && !sequence.adapter) return false;
  sequence.awaited.reset();
  return true;
}

// Throws why the sequence need not wait any longer.
void Generator::AwaitAdapter(Sequence& sequence) {
  const SequenceRequest& request = sequence.request;
  if (!sequence.wait_ends) sequence.wait_ends = Deadline::After(request.adapter_timeout);
  // One that is ready, but whose slot is closed to this sequence, is not waited for again.
  if (sequence.awaited && sequence.awaited->Ready()) sequence.awaited.reset();
  if (!sequence.awaited) sequence.awaited = promotions_.Ask(request.adapter);
  if (sequence.wait_ends->Passed()) throw adapters_.NoSlotFor(request.adapter);
}

// Does with the sequences under way what the engine does when their adapters get other versions.
void Generator::SwitchAdapters() {
  if (std::exchange(switches_, adapters_.switches()) == switches_) return;
  std::list<Sequence> ended;
  Json ids = Json::array();
  for (auto at = running_.begin(); at != running_.end();) {
    const auto sequence = at++;
    std::optional<AdapterLease> renewed = adapters_.Renewed(std::move(sequence->adapter));
    if (renewed) {
      sequence->adapter = std::move(*renewed);
      continue;
    }
    ids.push_back(sequence->id);
    ended.splice(ended.end(), running_, sequence);
  }
  AbortAll(ended);
  if (!ids.empty()) Drop(std::move(ids));
}

}  // namespace layercast

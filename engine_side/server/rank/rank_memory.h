// The memory that a rank has for long: weights, the staged copy, host copies of adapters and, on a device, caches. It
// can be lent back while the engine sleeps. Used by the rank's process.
#pragma once

#include <memory>

#include "engine_side/server/group/memory_file.h"
#include "src/base/failpoint.h"
#include "src/base/memory/sleepable_memory.h"
#include "src/base/unique_fd.h"
#include "src/control/json_forms.h"

namespace layercast {

// Resource; one thread at a time.
class RankMemory {
 public:
  // MemoryFile's descriptors. Value.
  struct Files {
    UniqueFd staging, host_adapters;
  };
  // Without `caches`, sequences bring their own, and leave with them.
  RankMemory(std::unique_ptr<SleepableMemory> weights, std::unique_ptr<SleepableMemory> caches, Files files,
             FailPoints failpoints);

  MemoryResource& weights() { return *weights_; }
  MemoryResource& staging() { return staging_; }
  MemoryResource& host_adapters() { return host_adapters_; }
  MemoryResource* caches() { return caches_.get(); }

  bool asleep() const { return weights_->asleep(); }

  // Both are for what `tags` name: "weights", with the staged copy and the slots of adapters, and "kv_cache". Host
  // copies of adapters stay: they are what is kept already. Memory that is as it is to be stays so. Sleep returns the
  // bytes that the system has got, by kind of memory.
  Json Sleep(const Json& tags, SleepLevel level);
  // Throws if there is no memory; then all sleep that did.
  void Wake(const Json& tags);

 private:
  std::unique_ptr<SleepableMemory> weights_;
  std::unique_ptr<SleepableMemory> caches_;
  MemoryFile staging_;
  MemoryFile host_adapters_;
  SleepLevel weights_level_ = SleepLevel::kKeep;  // at which they sleep, if they do
  FailPoints failpoints_;
};

// Whether `tags` has one of that name.
bool HasTag(const Json& tags, const char* tag);

}  // namespace layercast

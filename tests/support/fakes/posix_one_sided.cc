#include "tests/support/fakes/posix_one_sided.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/transport/ucx/one_sided/ucx_memory.h"

namespace layercast::test {
namespace {

using ucx_channel::RegisteredMemory;
using ucx_channel::UcxContext;
using ucx_channel::UcxRegisteredMemory;

// Memory that UCX allocates and, in doing so, registers.
class PosixArena final : public MemoryResource {
 public:
  explicit PosixArena(std::shared_ptr<UcxContext> context) : context_(std::move(context)) {}

  std::byte* Allocate(std::size_t bytes) override {
    ucp_mem_map_params_t params{};
    params.field_mask =
        UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = std::max<std::size_t>(bytes, 1);
    params.flags = UCP_MEM_MAP_ALLOCATE;
    ucp_mem_h mapped = nullptr;
    if (ucp_mem_map(context_->get(), &params, &mapped) != UCS_OK) {
      throw Error(ErrorCode::kResourceExhausted, "UCX allocates no " + std::to_string(bytes) + " bytes");
    }
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    ucp_mem_query(mapped, &attributes);
    auto* const address = static_cast<std::byte*>(attributes.address);
    const std::lock_guard lock(mutex_);
    blocks_[address] = {bytes, std::make_unique<UcxRegisteredMemory>(context_, mapped)};
    return address;
  }
  void Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept override {
    const std::lock_guard lock(mutex_);
    blocks_.erase(address);
  }
  std::vector<std::byte> KeyOf(std::span<const std::byte> memory) const {
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(memory.data());
    if (block == blocks_.begin()) throw Error(ErrorCode::kUnsupported, "not memory of the arena");
    --block;
    if (memory.data() + memory.size() > block->first + block->second.bytes) {
      throw Error(ErrorCode::kUnsupported, "not memory of the arena");
    }
    return block->second.registered->key();
  }

 private:
  struct Block {
    std::size_t bytes = 0;
    std::unique_ptr<UcxRegisteredMemory> registered;
  };
  const std::shared_ptr<UcxContext> context_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // guarded by mutex_
};

// A part of a block, with the block's key.
struct PosixMemoryPart final : RegisteredMemory {
  explicit PosixMemoryPart(std::vector<std::byte> of) : bytes(std::move(of)) {}
  const std::vector<std::byte>& key() const override { return bytes; }
  const std::vector<std::byte> bytes;
};

class PosixMemory final : public ucx_channel::UcxRemoteMemory {
 public:
  PosixMemory() : UcxRemoteMemory(PosixLanes()), arena_(context()) {}
  MemoryResource* arena() override { return &arena_; }
  std::unique_ptr<RegisteredMemory> Register(std::span<const std::byte> memory) override {
    return std::make_unique<PosixMemoryPart>(arena_.KeyOf(memory));
  }

 private:
  PosixArena arena_;
};

class PosixOneSided final : public ucx_channel::UcxOneSided {
 public:
  PosixOneSided() : UcxOneSided(PosixLanes()) {}
  std::unique_ptr<ucx_channel::RemoteMemory> MakeMemory() const override { return std::make_unique<PosixMemory>(); }
};

}  // namespace

ucx_channel::ReadLanes PosixLanes() {
  ::setenv("UCX_POSIX_ERROR_HANDLING", "y", 1);  // as the channel itself sets it
  return {"posix", {"posix/"}, {}};
}

std::shared_ptr<const ucx_channel::OneSided> MakePosixOneSided() { return std::make_shared<PosixOneSided>(); }

}  // namespace layercast::test

// The publisher's side of one-sided reads by UCX: memory that is registered with the devices of one context, for all
// receivers, and the targets by which they read it.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/transport/ucx/one_sided/read_lanes.h"
#include "src/transport/ucx/wire/remote_reads.h"
#include "src/transport/ucx/wire/ucx_context.h"

namespace layercast::ucx_channel {

// Resource.
class UcxRegisteredMemory final : public RegisteredMemory {
 public:
  // Takes over `mapped`, which ucp_mem_map has made. Throws kUnsupported if no device would read it by itself.
  UcxRegisteredMemory(std::shared_ptr<UcxContext> context, ucp_mem_h mapped);
  ~UcxRegisteredMemory() override { ucp_mem_unmap(context_->get(), mapped_); }
  UcxRegisteredMemory(const UcxRegisteredMemory&) = delete;
  UcxRegisteredMemory& operator=(const UcxRegisteredMemory&) = delete;

  const std::vector<std::byte>& key() const override { return key_; }

 private:
  void TakeKey();

  std::shared_ptr<UcxContext> context_;  // other owners: UcxRemoteMemory, other registered memory, links
  ucp_mem_h mapped_;
  std::vector<std::byte> key_;
};

// Resource; thread-safe.
class UcxRemoteMemory : public RemoteMemory {
 public:
  // Throws kUnavailable, and kUnsupported if UCX's context has other lanes than these.
  explicit UcxRemoteMemory(const ReadLanes& lanes);

  std::unique_ptr<RegisteredMemory> Register(std::span<const std::byte> memory) override;
  std::unique_ptr<ReadTarget> MakeTarget() override;

 protected:
  const std::shared_ptr<UcxContext>& context() const { return context_; }

 private:
  std::shared_ptr<UcxContext> context_;
};

// Makes a context that has only these lanes. Throws what UcxRemoteMemory's constructor throws.
std::shared_ptr<UcxContext> MakeReadContext(const ReadLanes& lanes, std::uint64_t features, bool by_threads);

}  // namespace layercast::ucx_channel

// One-sided reads by UCX, on hosts with devices that read by themselves. Used by the ucx transport.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "src/transport/ucx/one_sided/read_lanes.h"
#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast::ucx_channel {

// Thread-safe.
class UcxOneSided : public OneSided {
 public:
  explicit UcxOneSided(ReadLanes lanes) : lanes_(std::move(lanes)) {}
  bool Here() const override;
  std::unique_ptr<RemoteMemory> MakeMemory() const override;
  std::unique_ptr<RemoteReads> MakeReads() const override;

 private:
  const ReadLanes lanes_;
  mutable std::once_flag asked_;
  mutable bool here_ = false;  // written once, under asked_
};

}  // namespace layercast::ucx_channel

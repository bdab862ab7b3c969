// A UCX context: the devices that its workers use, and with which memory is registered. Used by UcxLink and for
// one-sided reads.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/transport/ucx/wire/settings.h"

namespace layercast::ucx_channel {

// Resource; immutable. One thread only, unless `by_threads` is set: then several may use it, each with its own workers.
class UcxContext {
 public:
  // `features`: UCP_FEATURE_*, to which UCP_FEATURE_WAKEUP is added. Throws kUnavailable if there are no such devices
  // here.
  UcxContext(const Settings& settings, std::uint64_t features, bool by_threads = false);
  ~UcxContext() { ucp_cleanup(context_); }
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h get() const { return context_; }
  bool takes_messages() const { return (features_ & UCP_FEATURE_AM) != 0; }
  // The lanes that its workers may use, as UCX prints them: "rc_mlx5/mlx5_0:1".
  std::vector<std::string> Lanes() const;

 private:
  const std::uint64_t features_;
  ucp_context_h context_ = nullptr;
};

}  // namespace layercast::ucx_channel

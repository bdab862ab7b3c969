// UCX's context: the devices that its workers go by, and what memory is registered with.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/transport/ucx/settings.h"

namespace layercast::ucx_channel {

// Immutable. Several threads may use it, each with workers of its own, where `by_threads` says so.
class UcxContext {
 public:
  // `features`: UCP_FEATURE_*, besides that of waking. Throws kUnavailable: there are no such devices here.
  UcxContext(const Settings& settings, std::uint64_t features, bool by_threads = false);
  ~UcxContext() { ucp_cleanup(context_); }
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h get() const { return context_; }
  bool takes_messages() const { return (features_ & UCP_FEATURE_AM) != 0; }
  // What its workers may go by, as UCX prints it: "rc_mlx5/mlx5_0:1".
  std::vector<std::string> Lanes() const;

 private:
  const std::uint64_t features_;
  ucp_context_h context_ = nullptr;
};

}  // namespace layercast::ucx_channel

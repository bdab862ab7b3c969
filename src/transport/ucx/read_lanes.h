// What one-sided reads may go by: devices that read by themselves. Everything else does it in software, at the other
// end, which checks nothing.
#pragma once

#include <string>
#include <vector>

#include "src/transport/ucx/settings.h"

namespace layercast::ucx_channel {

// Value.
struct ReadLanes {
  std::string transports;            // as UCX_TLS names them; empty: none
  std::vector<std::string> reading;  // how the names of those begin whose device reads by itself
  std::vector<std::string> helping;  // and of those that only help to connect

  // Whether nothing but these is in `lanes` ("rc_mlx5/mlx5_0:1"), and one that reads.
  bool Allow(const std::vector<std::string>& lanes) const;
};

// InfiniBand and RoCE: those of `environment` (UCX_TLS; may be null) that are RDMA.
ReadLanes RdmaLanes(const char* environment);
// For a context of nothing but these, whatever the environment says. Throws kUnavailable.
Settings MakeReadSettings(const ReadLanes& lanes);

}  // namespace layercast::ucx_channel

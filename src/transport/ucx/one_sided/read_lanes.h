// The lanes that one-sided reads may use: those of devices that read by themselves. Over all others UCX emulates reads
// in software at the publisher, which checks nothing.
#pragma once

#include <string>
#include <vector>

#include "src/transport/ucx/wire/settings.h"

namespace layercast::ucx_channel {

// Value.
struct ReadLanes {
  std::string transports;            // as UCX_TLS names them; empty: none
  std::vector<std::string> reading;  // how the names of lanes begin whose device reads by itself
  std::vector<std::string> helping;  // how the names of lanes begin that only help to connect

  // Whether `lanes` ("rc_mlx5/mlx5_0:1") are all of these two kinds, and at least one of them reads.
  bool Allow(const std::vector<std::string>& lanes) const;
};

// The lanes of InfiniBand and RoCE, as far as `environment`, the value of UCX_TLS (null: not set), allows them.
ReadLanes RdmaLanes(const char* environment);
// Settings of a context that has nothing but these lanes, whatever the environment says. Throws kUnavailable.
Settings MakeReadSettings(const ReadLanes& lanes);

}  // namespace layercast::ucx_channel

// The names of all transports, those too that this build lacks. Used by whoever takes or lists names.
#pragma once

#include <span>
#include <string_view>

namespace layercast {

// Value.
struct ChannelName {
  std::string_view name;
  bool leaves_the_process = true;  // it can reach another process
  std::string_view lacking{};      // why this build does not have it; empty: it does
};

// In the order of AllTransports().
std::span<const ChannelName> ChannelNames();

}  // namespace layercast

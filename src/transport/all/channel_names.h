// The table of all transports, with those too that this build lacks. Used by whoever takes or lists names, and by
// transports.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace layercast {

class Keys;
class Transport;

// A row of the table. Value.
struct ChannelName {
  std::string_view name;
  bool leaves_the_process = true;  // it can reach another process
  std::string_view lacking{};      // why this build does not have it; empty: it does
  // Null if this build lacks it.
  std::unique_ptr<Transport> (*make)(std::optional<int> cuda_device, const Keys& keys) = nullptr;
};

// In order of preference.
std::span<const ChannelName> ChannelNames();
// Whether a channel of that name is known, and reaches no other process.
bool StaysInTheProcess(std::string_view name);

}  // namespace layercast

// How a version is published. Value.
#pragma once

#include <cstdint>

namespace layercast {

// kSnapshot: the version stays in memory, and engines pull it at their own pace. kStream: the tensors are walked once
// for each engine as it takes them, and kept no longer than that.
enum class PublishMode : std::uint8_t { kSnapshot, kStream };

}  // namespace layercast

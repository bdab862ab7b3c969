#include "src/transport/nccl/wire/nccl_messages.h"

#include "layercast/error.h"

namespace layercast::nccl_channel {

NcclKind KindOf(std::span<const std::byte> message) { return static_cast<NcclKind>(DecodeKind(message)); }

void ExpectVersion(std::uint16_t version, const char* whose) {
  if (version == kVersion) return;
  throw Error(ErrorCode::kUnsupported, "the " + std::string(whose) + " speaks version " + std::to_string(version) +
                                           " of the nccl channel, expected " + std::to_string(kVersion));
}

std::string DeviceText(const DeviceUuid& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[std::to_integer<unsigned>(uuid[i]) >> 4];
    text += digits[std::to_integer<unsigned>(uuid[i]) & 15];
  }
  return text;
}

}  // namespace layercast::nccl_channel

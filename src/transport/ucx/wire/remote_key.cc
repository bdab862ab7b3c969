#include "src/transport/ucx/wire/remote_key.h"

#include <cstdint>
#include <string>

#include "src/base/bytes/bytes.h"

namespace layercast::ucx_channel {

// A key of UCX 1.13 to 1.20 has: its memory domains (a bit each), the kind of memory, and for each domain its part: a
// length and that many bytes. In later versions distances of devices may follow, which UCX reads only up to the end
// that it is told.
void CheckKey(std::span<const std::byte> key) {
  ByteReader reader("key", key);
  if (key.size() > kMaxKeyBytes) reader.Fail(std::to_string(key.size()) + " bytes");
  bool any = false;
  auto domains = reader.Get<std::uint64_t>("memory domains");
  if (const auto kind = reader.Get<std::uint8_t>("kind of memory"); kind != 0) {
    reader.Fail("not of host memory but of kind " + std::to_string(kind));
  }
  for (; domains != 0; domains &= domains - 1) {
    const auto bytes = reader.Get<std::uint8_t>("length of a domain's part");
    reader.GetBytes(bytes, "a domain's part");
    any = any || bytes != 0;
  }
  if (!any) reader.Fail("names no device that reads by itself");
}

}  // namespace layercast::ucx_channel

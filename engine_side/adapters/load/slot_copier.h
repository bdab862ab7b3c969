// Copies adapters between slots of one form, of which one may lie on a device, and reads back what they hold. Used by
// ranks, whose adapters move between slots and host copies.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "engine_side/adapters/adapter_slots.h"
#include "engine_side/reload/device/reload_stream.h"
#include "layercast/version.h"
#include "src/device/download.h"
#include "src/device/upload_ring.h"

namespace layercast {

// Resource; one thread only. It takes all its memory at the start.
class SlotCopier {
 public:
  // `stream` is of the device that slots lie on; null: all are in host memory.
  explicit SlotCopier(std::shared_ptr<ReloadStream> stream);

  // A slot among others. Value.
  struct Place {
    AdapterSlots& slots;
    std::size_t slot;
  };
  // Copies what the adapter in `from` has for its terms, its ranks and its scales. Both are of slots of the same terms
  // and sizes, and not both on a device. While it copies, `to` holds nothing.
  void Copy(const Place& from, const Place& to);
  // The digest that a load of this adapter has reported (LoadedAdapter::digest), of the bytes that are there now.
  Digest DigestOf(const Place& place);

 private:
  using Visit = Download::Visit;
  void Read(const AdapterSlots& of, std::span<const std::byte> bytes, const Visit& visit);
  void Write(const AdapterSlots& of, std::span<const std::byte> bytes, std::byte* to);

  const std::shared_ptr<ReloadStream> stream_;  // the other owner is whoever opened it
  std::optional<UploadRing> up_;
  std::optional<Download> down_;
};

}  // namespace layercast

#include "src/base/bytes/bytes.h"

#include "layercast/error.h"

namespace layercast {

void ByteWriter::PutBytes(std::span<const std::byte> raw) { bytes_.insert(bytes_.end(), raw.begin(), raw.end()); }

void ByteWriter::PutBytes(std::string_view text) { PutBytes(std::as_bytes(std::span(text))); }

std::span<const std::byte> ByteReader::GetBytes(std::size_t count, std::string_view field) {
  if (count > remaining()) {
    Fail("expected " + std::to_string(count) + " bytes for " + std::string(field) + ", got " +
         std::to_string(remaining()));
  }
  const std::span<const std::byte> taken = bytes_.subspan(position_, count);
  position_ += count;
  return taken;
}

std::string ByteReader::GetText(std::size_t count, std::string_view field) {
  const std::span<const std::byte> raw = GetBytes(count, field);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

void ByteReader::ExpectEnd() const {
  if (remaining() != 0) Fail("expected the end, got " + std::to_string(remaining()) + " more bytes");
}

void ByteReader::Fail(const std::string& message) const {
  throw Error(ErrorCode::kCorrupt, subject_ + ": at byte " + std::to_string(position_) + ": " + message);
}

}  // namespace layercast

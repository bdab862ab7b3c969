#include "src/delta/byte_stream.h"

#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

namespace layercast {
namespace {

enum class StreamCoding : std::uint8_t { kPlain, kPacked, kPackedPlanes };

constexpr std::size_t kBlockBytes = 1U << 20;
constexpr std::size_t kLeastWorthPacking = 32;  // less than the table of a Huffman code

std::vector<std::byte> SplitIntoPlanes(std::span<const std::byte> elements, std::size_t element_bytes) {
  const std::size_t count = elements.size() / element_bytes;
  std::vector<std::byte> planes(elements.size());
  for (std::size_t plane = 0; plane < element_bytes; ++plane) {
    std::byte* to = planes.data() + plane * count;
    for (std::size_t i = 0; i < count; ++i) to[i] = elements[i * element_bytes + plane];
  }
  return planes;
}

std::vector<std::byte> JoinPlanes(std::span<const std::byte> planes, std::size_t element_bytes) {
  const std::size_t count = planes.size() / element_bytes;
  std::vector<std::byte> elements(planes.size());
  for (std::size_t plane = 0; plane < element_bytes; ++plane) {
    const std::byte* from = planes.data() + plane * count;
    for (std::size_t i = 0; i < count; ++i) elements[i * element_bytes + plane] = from[i];
  }
  return elements;
}

void PutStream(StreamCoding coding, std::size_t bytes, std::span<const std::byte> as_written, ByteWriter& to) {
  to.Put(static_cast<std::uint8_t>(coding), std::uint64_t{bytes}, std::uint64_t{as_written.size()});
  to.PutBytes(as_written);
}

// Unpacks `bytes` that were written as zstd frames, each behind its size. The result's size is known before.
std::vector<std::byte> Unpack(ByteReader& reader, std::span<const std::byte> packed, std::size_t bytes,
                              std::string_view field) {
  std::vector<std::byte> stream(bytes);
  ByteReader blocks(std::string("delta: ") + std::string(field), packed);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t expected = std::min(kBlockBytes, bytes - done);
    const std::span<const std::byte> block = blocks.GetBytes(blocks.Get<std::uint32_t>("block size"), "block");
    if (ZSTD_getFrameContentSize(block.data(), block.size()) != expected) {
      reader.Fail(std::string(field) + ": expected a block of " + std::to_string(expected) + " bytes");
    }
    const std::size_t got = ZSTD_decompress(stream.data() + done, expected, block.data(), block.size());
    if (ZSTD_isError(got) != 0) reader.Fail(std::string(field) + ": " + ZSTD_getErrorName(got));
    if (got != expected) reader.Fail(std::string(field) + ": a block of " + std::to_string(got) + " bytes");
    done += expected;
  }
  blocks.ExpectEnd();
  return stream;
}

}  // namespace

struct StreamWriter::Compressor {
  Compressor() {
    if (context == nullptr) throw std::bad_alloc();
    // Huffman coding is what is wanted: matches are rare, and to look for them hardly pays.
    Set(ZSTD_c_strategy, ZSTD_fast);
    Set(ZSTD_c_hashLog, 6);
    Set(ZSTD_c_minMatch, 7);
    Set(ZSTD_c_windowLog, 20);
  }
  ~Compressor() { ZSTD_freeCCtx(context); }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  void Set(ZSTD_cParameter parameter, int value) const { ZSTD_CCtx_setParameter(context, parameter, value); }

  std::vector<std::byte> Pack(std::span<const std::byte> stream) {
    ByteWriter packed;
    block.resize(ZSTD_compressBound(std::min(kBlockBytes, stream.size())));
    for (; !stream.empty(); stream = stream.subspan(std::min(kBlockBytes, stream.size()))) {
      const std::size_t size =
          ZSTD_compress2(context, block.data(), block.size(), stream.data(), std::min(kBlockBytes, stream.size()));
      if (ZSTD_isError(size) != 0) throw std::bad_alloc();  // there is room, so memory is all that can fail
      packed.Put(static_cast<std::uint32_t>(size));
      packed.PutBytes(std::span(block).first(size));
    }
    return std::move(packed).Take();
  }

  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::vector<std::byte> block;
};

StreamWriter::StreamWriter(bool compress) {
  if (compress) compressor_ = std::make_unique<Compressor>();
}
StreamWriter::~StreamWriter() = default;

void StreamWriter::Write(std::span<const std::byte> stream, ByteWriter& to) {
  if (compressor_ != nullptr && stream.size() >= kLeastWorthPacking) {
    const std::vector<std::byte> packed = compressor_->Pack(stream);
    if (packed.size() < stream.size()) return PutStream(StreamCoding::kPacked, stream.size(), packed, to);
  }
  PutStream(StreamCoding::kPlain, stream.size(), stream, to);
}

void StreamWriter::WriteElements(std::span<const std::byte> elements, std::size_t element_bytes, ByteWriter& to) {
  if (compressor_ != nullptr && elements.size() >= kLeastWorthPacking) {
    const std::vector<std::byte> packed = compressor_->Pack(SplitIntoPlanes(elements, element_bytes));
    if (packed.size() < elements.size()) {
      return PutStream(StreamCoding::kPackedPlanes, elements.size(), packed, to);
    }
  }
  PutStream(StreamCoding::kPlain, elements.size(), elements, to);
}

namespace {

// The head of a stream, and its bytes as they were written.
struct WrittenStream {
  StreamCoding coding;
  std::size_t bytes;
  std::span<const std::byte> as_written;
};

WrittenStream ReadWritten(ByteReader& reader, std::size_t least, std::size_t most, StreamCoding packed,
                          std::string_view field) {
  const auto coding = static_cast<StreamCoding>(reader.Get<std::uint8_t>(field));
  if (coding != StreamCoding::kPlain && coding != packed) {
    reader.Fail(std::string(field) + ": unknown coding " + std::to_string(static_cast<int>(coding)));
  }
  const auto bytes = reader.Get<std::uint64_t>(field);
  if (bytes < least || bytes > most) {
    reader.Fail(std::string(field) + ": expected " + std::to_string(least) + " to " + std::to_string(most) +
                " bytes, got " + std::to_string(bytes));
  }
  const auto written = reader.Get<std::uint64_t>(field);
  if (coding == StreamCoding::kPlain && written != bytes) {
    reader.Fail(std::string(field) + ": expected " + std::to_string(bytes) + " plain bytes, got " +
                std::to_string(written));
  }
  return {coding, bytes, reader.GetBytes(written, field)};
}

}  // namespace

StreamBytes ReadStream(ByteReader& reader, std::size_t least, std::size_t most, std::string_view field) {
  const WrittenStream stream = ReadWritten(reader, least, most, StreamCoding::kPacked, field);
  if (stream.coding == StreamCoding::kPlain) return StreamBytes(stream.as_written);
  return StreamBytes(Unpack(reader, stream.as_written, stream.bytes, field));
}

StreamBytes ReadElements(ByteReader& reader, std::size_t bytes, std::size_t element_bytes, std::string_view field) {
  const WrittenStream stream = ReadWritten(reader, bytes, bytes, StreamCoding::kPackedPlanes, field);
  if (stream.coding == StreamCoding::kPlain) return StreamBytes(stream.as_written);
  return StreamBytes(JoinPlanes(Unpack(reader, stream.as_written, bytes, field), element_bytes));
}

}  // namespace layercast

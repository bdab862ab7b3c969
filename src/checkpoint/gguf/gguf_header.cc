#include "src/checkpoint/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint32_t kMostDimensions = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr char kAlignmentKey[] = "general.alignment";

// Types of entries.
enum : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64, kTypes };
constexpr std::size_t kBytesOf[kTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// The encoding's name, for a user who has to choose another.
std::string EncodingName(std::uint32_t type) {
  constexpr std::string_view kNames[] = {"F32",  "F16",  "Q4_0", "Q4_1", "",     "",     "Q5_0", "Q5_1",
                                         "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K"};
  return type < std::size(kNames) && !kNames[type].empty() ? std::string(kNames[type]) : "type " + std::to_string(type);
}

class Parser {
 public:
  Parser(std::span<const std::byte> file, const std::string& subject)
      : file_(file), subject_(subject), reader_(subject, file) {}

  // Reads what a file begins with, as far as the number of tensors.
  std::uint64_t CountTensors() {
    const auto magic = reader_.Get<std::uint32_t>("the magic number");
    if (magic != kMagic) reader_.Fail("expected a file that begins with 'GGUF'");
    const auto version = reader_.Get<std::uint32_t>("the version");
    if (version != 2 && version != 3) reader_.Fail("expected version 2 or 3, got " + std::to_string(version));
    return reader_.Get<std::uint64_t>("the number of tensors");
  }

  GgufHeader Parse() {
    const std::uint64_t tensors = CountTensors();
    const auto entries = reader_.Get<std::uint64_t>("the number of entries");
    for (std::uint64_t i = 0; i < entries; ++i) ReadEntry();
    for (std::uint64_t i = 0; i < tensors; ++i) ReadTensor();
    PlaceTensors();
    return std::move(header_);
  }

 private:
  std::string ReadText(std::string_view field) {
    const auto bytes = reader_.Get<std::uint64_t>(field);
    if (bytes > reader_.remaining()) {
      reader_.Fail(std::string(field) + ": expected at most the " + std::to_string(reader_.remaining()) +
                   " bytes that follow, got " + std::to_string(bytes));
    }
    return reader_.GetText(static_cast<std::size_t>(bytes), field);
  }

  void ReadEntry() {
    const std::string key = ReadText("the key of an entry");
    const auto type = reader_.Get<std::uint32_t>("the type of an entry");
    if (!header_.keys.insert(key).second) reader_.Fail("expected the entry " + Quote(key) + " once, got it twice");
    if (type == kText) {
      header_.texts.emplace(key, ReadText(key));
    } else if (type == kArray) {
      SkipArray(key);
    } else {
      const std::span<const std::byte> bytes = reader_.GetBytes(Width(type, key), key);
      if (IsWholeNumber(type, bytes)) header_.numbers.emplace(key, Unsigned(bytes));
      if (type == kF32) header_.floats.emplace(key, std::bit_cast<float>(static_cast<std::uint32_t>(Unsigned(bytes))));
    }
  }

  std::size_t Width(std::uint32_t type, const std::string& key) const {
    if (type < kTypes && kBytesOf[type] != 0) return kBytesOf[type];
    reader_.Fail("entry " + Quote(key) + ": expected a type below " + std::to_string(kTypes) + ", got " +
                 std::to_string(type));
  }

  // Whether a value is a whole number that is not negative.
  static bool IsWholeNumber(std::uint32_t type, std::span<const std::byte> bytes) {
    switch (type) {
      case kU8:
      case kU16:
      case kU32:
      case kU64: return true;
      case kI8:
      case kI16:
      case kI32:
      case kI64: return (bytes.back() & std::byte{0x80}) == std::byte{0};
      default: return false;
    }
  }

  static std::uint64_t Unsigned(std::span<const std::byte> bytes) {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) number |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    return number;
  }

  // Arrays are mostly vocabularies. No tensor depends on them.
  void SkipArray(const std::string& key) {
    const auto type = reader_.Get<std::uint32_t>("the type of an array");
    const auto count = reader_.Get<std::uint64_t>("the length of an array");
    if (type == kText) {
      for (std::uint64_t i = 0; i < count; ++i) ReadText(key);
      return;
    }
    const std::size_t width = Width(type, key);
    if (count > reader_.remaining() / width) {
      reader_.Fail("array " + Quote(key) + ": expected at most " + std::to_string(reader_.remaining() / width) +
                   " values, got " + std::to_string(count));
    }
    reader_.GetBytes(static_cast<std::size_t>(count) * width, key);
  }

  void ReadTensor() {
    GgufHeader::Tensor tensor;
    tensor.name = ReadText("the name of a tensor");
    const std::string what = "tensor " + Quote(tensor.name) + ": ";
    if (FindInvalidUtf8(tensor.name)) reader_.Fail(what + "expected a name in UTF-8");
    if (!names_.insert(tensor.name).second) reader_.Fail(what + "expected it once, got it twice");
    const auto dimensions = reader_.Get<std::uint32_t>("the number of dimensions");
    if (dimensions > kMostDimensions) {
      reader_.Fail(what + "expected at most 4 dimensions, got " + std::to_string(dimensions));
    }
    for (std::uint32_t d = 0; d < dimensions; ++d) {
      const auto size = reader_.Get<std::uint64_t>("a dimension");
      if (size > INT64_MAX) reader_.Fail(what + "expected a dimension below 2^63, got " + std::to_string(size));
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    const auto type = reader_.Get<std::uint32_t>("the encoding");
    tensor.begin = reader_.Get<std::uint64_t>("the offset");
    SetEncoding(tensor, type, what);
    header_.tensors.push_back(std::move(tensor));
  }

  void SetEncoding(GgufHeader::Tensor& tensor, std::uint32_t type, const std::string& what) const {
    tensor.type = static_cast<GgufType>(type);
    if (tensor.type != GgufType::kF32 && tensor.type != GgufType::kF16 && tensor.type != GgufType::kBF16 &&
        tensor.type != GgufType::kQ80) {
      throw Error(ErrorCode::kUnsupported,
                  subject_ + ": " + what + "expected F32, F16, BF16 or Q8_0, got " + EncodingName(type));
    }
    const std::int64_t inner = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (tensor.type == GgufType::kQ80 && inner % kQ8BlockElements != 0) {
      reader_.Fail(what + "Q8_0: expected rows of a multiple of 32 elements, got " + ToString(tensor.shape));
    }
    try {
      tensor.bytes = EncodedBytes(tensor.type, tensor.shape);
    } catch (const Error& error) {
      reader_.Fail(what + error.what());
    }
  }

  // The bytes of a tensor in the file. Its bytes as fp32, the most that it can become, must be a valid number too.
  static std::uint64_t EncodedBytes(GgufType type, const Shape& shape) {
    const std::int64_t wide = NumBytes(DType::kF32, shape);
    if (type == GgufType::kF32) return static_cast<std::uint64_t>(wide);
    if (type == GgufType::kQ80)
      return static_cast<std::uint64_t>(NumElements(shape) / kQ8BlockElements * kQ8BlockBytes);
    return static_cast<std::uint64_t>(wide / 2);
  }

  // Turns offsets, which count from the end of the header, into places in the file. Tensors may not share bytes.
  void PlaceTensors() {
    std::uint64_t alignment = kDefaultAlignment;
    if (const auto given = header_.numbers.find(kAlignmentKey); given != header_.numbers.end())
      alignment = given->second;
    if (alignment == 0 || alignment > file_.size() || (alignment & (alignment - 1)) != 0) {
      reader_.Fail(std::string(kAlignmentKey) + ": expected a power of two within the file, got " +
                   std::to_string(alignment));
    }
    const std::uint64_t data = (reader_.position() + alignment - 1) / alignment * alignment;
    const std::uint64_t data_bytes = file_.size() < data ? 0 : file_.size() - data;
    std::vector<const GgufHeader::Tensor*> by_place;
    for (GgufHeader::Tensor& tensor : header_.tensors) {
      if (tensor.begin > data_bytes || tensor.bytes > data_bytes - tensor.begin || tensor.begin % alignment != 0) {
        reader_.Fail("tensor " + Quote(tensor.name) + ": expected " + std::to_string(tensor.bytes) +
                     " bytes at a multiple of " + std::to_string(alignment) + " within the " +
                     std::to_string(data_bytes) + " bytes of data, got the offset " + std::to_string(tensor.begin));
      }
      tensor.begin += data;
      by_place.push_back(&tensor);
    }
    // An empty tensor is sorted before the one whose bytes begin at the same place.
    std::ranges::sort(by_place, {}, [](const auto* tensor) { return std::pair(tensor->begin, tensor->bytes); });
    for (std::size_t i = 1; i < by_place.size(); ++i) {
      const std::uint64_t end = by_place[i - 1]->begin + by_place[i - 1]->bytes;
      if (end <= by_place[i]->begin) continue;
      reader_.Fail("tensor " + Quote(by_place[i]->name) + ": expected it behind byte " + std::to_string(end) +
                   ", where " + Quote(by_place[i - 1]->name) + " ends, got it at byte " +
                   std::to_string(by_place[i]->begin));
    }
  }

  const std::span<const std::byte> file_;
  const std::string& subject_;
  ByteReader reader_;
  GgufHeader header_;
  std::set<std::string> names_;
};

}  // namespace

const std::string& GgufHeader::Text(const std::string& key, const std::string& subject) const {
  if (const auto found = texts.find(key); found != texts.end()) return found->second;
  throw Error(ErrorCode::kCorrupt, subject + ": expected the entry " + key + ", got none that is text");
}

std::uint64_t GgufHeader::Number(const std::string& key, const std::string& subject) const {
  if (const auto found = numbers.find(key); found != numbers.end()) return found->second;
  throw Error(ErrorCode::kCorrupt, subject + ": expected the entry " + key + ", got none that is a whole number");
}

GgufHeader ParseGguf(std::span<const std::byte> file, const std::string& subject) {
  return Parser(file, subject).Parse();
}

std::uint64_t CountGgufTensors(std::span<const std::byte> file, const std::string& subject) {
  return Parser(file, subject).CountTensors();
}

}  // namespace layercast

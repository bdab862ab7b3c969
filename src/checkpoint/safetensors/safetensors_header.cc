#include "src/checkpoint/safetensors/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/strict_json.h"

namespace layercast {
namespace {

using JsonKind = JsonValue::Kind;

[[noreturn]] void Fail(const std::string& subject, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, subject + ": " + what);
}

// Collects the header's fields, and checks their types. Validate checks what they mean together.
class HeaderVisitor final : public JsonVisitor {
 public:
  HeaderVisitor(const std::string& file, SafetensorsHeader& header) : file_(file), header_(header) {}

  void Visit(std::span<const std::string_view> path, const JsonValue& value) override {
    if (path.empty()) return;
    if (path[0] == kSafetensorsMetadataKey) return VisitMetadata(path, value);
    if (path.size() == 1) return VisitTensor(path[0], value);
    VisitField(path, value);
  }

 private:
  void VisitMetadata(std::span<const std::string_view> path, const JsonValue& value) {
    const std::string subject = file_ + ": " + kSafetensorsMetadataKey;
    if (path.size() == 1) {
      if (value.kind == JsonKind::kOther && value.text == "null") return;  // as if it were not there
      if (value.kind != JsonKind::kEndObject) Expect(value, JsonKind::kBeginObject, "an object", subject);
      return;
    }
    Expect(value, JsonKind::kString, "text", subject + ": " + Quote(path[1]));
    header_.metadata.emplace(path[1], value.text);
  }

  void VisitTensor(std::string_view name, const JsonValue& value) {
    if (value.kind == JsonKind::kEndObject) return EndTensor();
    Expect(value, JsonKind::kBeginObject, "an object", file_ + ": tensor " + Quote(name));
    header_.tensors.emplace_back().spec.name = name;
    has_dtype_ = has_shape_ = false;
    offsets_.reset();
  }

  void EndTensor() {
    const char* const missing = !has_dtype_ ? "dtype" : !has_shape_ ? "shape" : !offsets_ ? "data_offsets" : nullptr;
    if (missing != nullptr) Fail(Subject(), std::string("expected the field ") + missing + ", got none");
    if (offsets_->size() != 2) {
      Fail(Subject(), "data_offsets: expected 2 numbers, got " + std::to_string(offsets_->size()));
    }
    header_.tensors.back().begin = offsets_->at(0);
    header_.tensors.back().end = offsets_->at(1);
  }

  void VisitField(std::span<const std::string_view> path, const JsonValue& value) {
    if (path[1] == "dtype") return VisitDType(value);
    if (path[1] == "shape") return VisitShape(path.size() == 2, value);
    if (path[1] == "data_offsets") return VisitOffsets(path.size() == 2, value);
    // Any other field is ignored: where the tensor's bytes are, and what they mean, is known without it.
  }

  void VisitDType(const JsonValue& value) {
    Expect(value, JsonKind::kString, "a dtype's name", Subject() + ": dtype");
    const std::optional<DType> dtype = DTypeFromSafetensors(value.text);
    if (!dtype) Fail(Subject(), "unknown dtype " + Quote(value.text));
    header_.tensors.back().spec.dtype = *dtype;
    has_dtype_ = true;
  }

  void VisitShape(bool whole, const JsonValue& value) {
    has_shape_ = true;
    if (whole) return ExpectArray(value, "shape");
    Expect(value, JsonKind::kUnsigned, "a whole number", Subject() + ": shape");
    if (value.number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      Fail(Subject(), "shape: expected a dimension below 2^63, got " + std::string(value.text));
    }
    header_.tensors.back().spec.shape.push_back(static_cast<std::int64_t>(value.number));
  }

  void VisitOffsets(bool whole, const JsonValue& value) {
    if (whole) {
      if (value.kind == JsonKind::kBeginArray) offsets_.emplace();
      return ExpectArray(value, "data_offsets");
    }
    Expect(value, JsonKind::kUnsigned, "a whole number", Subject() + ": data_offsets");
    offsets_->push_back(value.number);
  }

  void ExpectArray(const JsonValue& value, const char* field) const {
    if (value.kind != JsonKind::kEndArray) Expect(value, JsonKind::kBeginArray, "an array", Subject() + ": " + field);
  }

  static void Expect(const JsonValue& value, JsonKind kind, const char* what, const std::string& subject) {
    if (value.kind == kind) return;
    const std::string got = value.kind == JsonKind::kString ? Quote(value.text) : std::string(value.text);
    Fail(subject, std::string("expected ") + what + ", got " + got);
  }

  std::string Subject() const { return file_ + ": tensor " + Quote(header_.tensors.back().spec.name); }

  const std::string& file_;
  SafetensorsHeader& header_;
  bool has_dtype_ = false;  // of the tensor that is being read, as is what follows
  bool has_shape_ = false;
  std::optional<std::vector<std::uint64_t>> offsets_;
};

// The header's text, whose length the file's first 8 bytes give.
std::string_view HeaderText(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < kSafetensorsPrefix) {
    Fail(name, "expected at least 8 bytes for the header's length, got a file of " + std::to_string(file.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kSafetensorsPrefix; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > kLargestSafetensorsHeader) {
    Fail(name, "header length at byte 0: expected at most " + std::to_string(kLargestSafetensorsHeader) + ", got " +
                   std::to_string(length));
  }
  if (length > file.size() - kSafetensorsPrefix) {
    Fail(name, "header length at byte 0: expected at most the " + std::to_string(file.size() - kSafetensorsPrefix) +
                   " bytes that follow, got " + std::to_string(length));
  }
  return {reinterpret_cast<const char*>(file.data()) + kSafetensorsPrefix, static_cast<std::size_t>(length)};
}

std::string Offsets(const SafetensorsHeader::Stored& tensor) {
  return "data_offsets [" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) + "]";
}

void CheckSize(const SafetensorsHeader::Stored& tensor, std::uint64_t data_bytes, const std::string& subject) {
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    Fail(subject,
         Offsets(tensor) + ": expected a range inside the file's " + std::to_string(data_bytes) + " bytes of data");
  }
  std::uint64_t expected = 0;
  try {
    expected = static_cast<std::uint64_t>(tensor.spec.num_bytes());
  } catch (const Error& error) {
    Fail(subject, error.what());
  }
  if (tensor.end - tensor.begin != expected) {
    Fail(subject, Offsets(tensor) + ": expected " + std::to_string(expected) + " bytes for " + Describe(tensor.spec) +
                      ", got " + std::to_string(tensor.end - tensor.begin));
  }
}

// Checks all tensors together. Their offsets are still those of the header, relative to the data.
void Validate(std::vector<SafetensorsHeader::Stored>& tensors, std::uint64_t data_bytes, const std::string& name) {
  const auto subject = [&](const SafetensorsHeader::Stored& tensor) {
    return name + ": tensor " + Quote(tensor.spec.name);
  };
  for (const auto& tensor : tensors) CheckSize(tensor, data_bytes, subject(tensor));
  std::ranges::sort(tensors, {}, [](const auto& tensor) {
    return std::tuple(tensor.begin, tensor.end, std::string_view(tensor.spec.name));
  });
  std::uint64_t expected = 0;
  for (const auto& tensor : tensors) {
    if (tensor.begin != expected) {
      Fail(subject(tensor), Offsets(tensor) + ": expected to begin at " + std::to_string(expected) + ", got " +
                                (tensor.begin < expected ? "an overlap of " + std::to_string(expected - tensor.begin)
                                                         : "a hole of " + std::to_string(tensor.begin - expected)) +
                                " bytes");
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    Fail(name, "expected " + std::to_string(expected) + " bytes of data, got " + std::to_string(data_bytes) + ": " +
                   std::to_string(data_bytes - expected) + " belong to no tensor");
  }
}

}  // namespace

SafetensorsHeader ParseSafetensors(std::span<const std::byte> file, const std::string& name) {
  const std::string_view text = HeaderText(file, name);
  SafetensorsHeader header;
  HeaderVisitor visitor(name, header);
  WalkJsonObject(text, name + ": header", visitor);
  const std::uint64_t data_begin = kSafetensorsPrefix + text.size();
  Validate(header.tensors, file.size() - data_begin, name);
  for (auto& tensor : header.tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  return header;
}

}  // namespace layercast

#include "src/delta/delta_header.h"

#include <array>
#include <limits>
#include <string>

#include "layercast/error.h"
#include "src/base/digest/digest.h"

namespace layercast {
namespace {

constexpr std::uint32_t kDeltaMagic = 0x4644434c;  // "LCDF"
constexpr std::uint8_t kDeltaFormat = 1;
constexpr std::string_view kFormNames[] = {"skip", "dense", "range", "gaps", "bitmap", "two lists"};

void DigestField(auto& archive, auto& digest, std::string_view field) {
  archive.Number(digest.high, field);
  archive.Number(digest.low, field);
}

void Fields(auto& archive, Is<DeltaHeader> auto& header) {
  As<std::uint8_t>(archive, header.element_bytes, "element bytes");
  As<std::uint8_t>(archive, header.form, "form");
  std::uint8_t reserved = 0;
  archive.Number(reserved, "reserved byte");
  if (reserved != 0) archive.Refuse("expected 0 in the reserved byte, got " + std::to_string(reserved));
  archive.Number(header.elements, "elements");
  archive.Number(header.changed, "changed elements");
  archive.Number(header.parameter, "parameter");
  DigestField(archive, header.base, "base digest");
  DigestField(archive, header.result, "result digest");
}

// What is wrong with a head by itself; empty where nothing is.
std::string WrongWithHeader(const DeltaHeader& header) {
  if (header.element_bytes != 1 && header.element_bytes != 2 && header.element_bytes != 4) {
    return "expected elements of 1, 2 or 4 bytes, got " + std::to_string(header.element_bytes);
  }
  if (static_cast<std::size_t>(header.form) >= std::size(kFormNames)) {
    return "unknown form " + std::to_string(static_cast<int>(header.form));
  }
  if (header.elements > std::numeric_limits<std::uint64_t>::max() / 16) {  // so that no sum of positions overflows
    return "expected fewer elements than " + std::to_string(header.elements);
  }
  if (header.changed > header.elements ||
      (header.form == DeltaForm::kSkip) != (header.changed == 0 && header.form != DeltaForm::kDense)) {
    return "form " + std::string(NameOf(header.form)) + ": " + std::to_string(header.changed) + " of " +
           std::to_string(header.elements) + " elements changed";
  }
  const std::uint64_t most_parameter = header.form == DeltaForm::kRange ? header.elements - header.changed
                                       : header.form == DeltaForm::kTwoLists
                                           ? (std::uint64_t{1} << (8 * header.element_bytes - 1)) - 1
                                           : 0;
  if (header.parameter > most_parameter) {
    return "expected a parameter of at most " + std::to_string(most_parameter) + ", got " +
           std::to_string(header.parameter);
  }
  if (header.form == DeltaForm::kSkip && header.base != header.result) return "nothing changed, but the digest";
  if (header.form == DeltaForm::kDense && (header.changed != header.elements || header.base != Digest{})) {
    return "form dense: expected all elements and no base";
  }
  return {};
}

Digest FrameDigest(std::span<const std::byte> head, std::span<const std::byte> body) {
  Digester digester;
  digester.Update(head);
  digester.Update(body);
  return digester.Finish();
}

}  // namespace

std::string_view NameOf(DeltaForm form) { return kFormNames[static_cast<std::size_t>(form)]; }

std::vector<std::byte> JoinFrame(const DeltaHeader& header, std::span<const std::byte> body) {
  ArchiveWriter frame;
  frame.Put(kDeltaMagic, kDeltaFormat);
  Fields(frame, header);
  const Digest digest = FrameDigest(frame.bytes(), body);
  frame.Put(digest.high, digest.low);
  frame.PutBytes(body);
  return std::move(frame).Take();
}

OpenedFrame OpenFrame(std::span<const std::byte> frame) {
  ArchiveReader reader("delta", frame);
  if (const auto magic = reader.Get<std::uint32_t>("magic"); magic != kDeltaMagic)
    reader.Fail("this is no delta frame");
  if (const auto format = reader.Get<std::uint8_t>("format"); format != kDeltaFormat) {
    reader.Fail("expected format " + std::to_string(kDeltaFormat) + ", got " + std::to_string(format));
  }
  OpenedFrame opened;
  Fields(reader, opened.header);
  const std::span<const std::byte> head = frame.first(reader.position());
  const auto high = reader.Get<std::uint64_t>("frame digest");
  const Digest expected{high, reader.Get<std::uint64_t>("frame digest")};
  opened.body = frame.subspan(reader.position());
  if (const Digest got = FrameDigest(head, opened.body); got != expected) {
    reader.Fail("frame digest: expected " + expected.ToHex() + ", got " + got.ToHex());
  }
  if (const std::string wrong = WrongWithHeader(opened.header); !wrong.empty()) reader.Fail(wrong);
  return opened;
}

}  // namespace layercast

#include "src/delta/delta_body.h"

#include <bit>
#include <cstring>
#include <string>

#include "src/delta/change_list.h"
#include "src/delta/element_bits.h"

namespace layercast {
namespace {

std::size_t CountWide(std::span<const std::byte> codes) {
  std::size_t count = 0;
  for (const std::byte code : codes) count += code == std::byte{kWideStep} ? 1 : 0;
  return count;
}

// The steps of between `least` and `most` elements.
void ReadSteps(ByteReader& reader, const DeltaHeader& header, std::size_t least, std::size_t most, GappedSteps& into) {
  into.codes = ReadStream(reader, least, most, "steps");
  const std::size_t wide = CountWide(into.codes.bytes()) * header.element_bytes;
  into.wide = ReadStream(reader, wide, wide, "wide steps");
}

void ReadList(ByteReader& reader, const DeltaHeader& header, std::size_t least, std::size_t most, GappedSteps& into) {
  into.gap_width = reader.Get<std::uint8_t>("gap width");
  if (into.gap_width != 1 && into.gap_width != 2) {
    reader.Fail("expected gaps of 1 or 2 bytes, got " + std::to_string(into.gap_width));
  }
  into.high = ReadStream(reader, least, MostGapBytes(header.elements, most, into.gap_width), "gaps");
  into.low = ReadStream(reader, 0, into.gap_width == 2 ? most : 0, "low bytes of gaps");
  ReadSteps(reader, header, least, most, into);
  const std::size_t count = into.codes.bytes().size();
  if (const std::string wrong = WrongWithGaps(into.gaps(), header.elements, count); !wrong.empty()) reader.Fail(wrong);
  if (const std::size_t low = into.gap_width == 2 ? count : 0; into.low.bytes().size() != low) {
    reader.Fail("expected " + std::to_string(low) + " low bytes of gaps, got " +
                std::to_string(into.low.bytes().size()));
  }
}

std::vector<std::uint64_t> ReadBitmap(ByteReader& reader, const DeltaHeader& header) {
  const std::size_t bytes = (header.elements + 7) / 8;
  const StreamBytes stream = ReadStream(reader, bytes, bytes, "bitmap");
  std::vector<std::uint64_t> words(NumWords(header.elements));
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(words.data(), stream.bytes().data(), bytes);
  if (const std::size_t last = header.elements % kWordBits; last != 0 && words.back() >> last != 0) {
    reader.Fail("bitmap: bits are set beyond element " + std::to_string(header.elements));
  }
  if (const std::size_t set = CountBits(words); set != header.changed) {
    reader.Fail("bitmap: expected " + std::to_string(header.changed) + " bits, got " + std::to_string(set));
  }
  return words;
}

void ReadTwoLists(ByteReader& reader, const DeltaHeader& header, DeltaBody& body) {
  ReadList(reader, header, 0, header.changed, body.small);
  const std::size_t others = header.changed - body.small.codes.bytes().size();
  ReadList(reader, header, others, others, body.list);
}

}  // namespace

DeltaBody ReadBody(const OpenedFrame& frame) {
  const DeltaHeader& header = frame.header;
  ByteReader reader("delta of form " + std::string(NameOf(header.form)), frame.body);
  DeltaBody body;
  switch (header.form) {
    case DeltaForm::kSkip: break;
    case DeltaForm::kDense: body.dense = ReadElements(reader, header.bytes(), header.element_bytes, "elements"); break;
    case DeltaForm::kRange: ReadSteps(reader, header, header.changed, header.changed, body.list); break;
    case DeltaForm::kGaps: ReadList(reader, header, header.changed, header.changed, body.list); break;
    case DeltaForm::kBitmap:
      body.words = ReadBitmap(reader, header);
      ReadSteps(reader, header, header.changed, header.changed, body.list);
      break;
    case DeltaForm::kTwoLists: ReadTwoLists(reader, header, body); break;
  }
  reader.ExpectEnd();
  return body;
}

}  // namespace layercast

#include "src/transport/shm/offer_table.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "layercast/error.h"

namespace layercast::shm_channel {
namespace {

struct Header {
  std::uint64_t magic;
  std::uint64_t live;
  std::uint64_t tensors;
};
struct Entry {
  std::uint32_t segment;
  std::uint32_t zero;
  std::uint64_t offset;
  std::uint64_t bytes;
};
static_assert(sizeof(Header) == 24 && sizeof(Entry) == 24);

constexpr std::uint64_t kMagic = 0x4C42544D4853434C;  // "LCSHMTBL" as bytes in memory

// The one field that changes while both ends have the table mapped.
std::uint64_t* LiveOf(const Mapping& memory) {
  return reinterpret_cast<std::uint64_t*>(memory.base() + offsetof(Header, live));
}

[[noreturn]] void Fail(const std::string& what) { throw Error(ErrorCode::kCorrupt, "the table of an offer: " + what); }

}  // namespace

WrittenTable::WrittenTable(const Offer& offer, const Arena& arena)
    : file_(MakeMemfd("layercast-offer", sizeof(Header) + offer.tensors.size() * sizeof(Entry))) {
  std::byte* next = file_.memory.base() + sizeof(Header);
  for (std::size_t i = 0; i < offer.tensors.size(); ++i, next += sizeof(Entry)) {
    const OfferedTensor& tensor = offer.tensors[i];
    if (tensor.bytes == 0) continue;
    try {
      const Location at = arena.Locate(tensor.data, tensor.bytes);
      auto known = std::find(segments_.begin(), segments_.end(), at.segment);
      if (known == segments_.end()) known = segments_.insert(segments_.end(), at.segment);
      const Entry entry{static_cast<std::uint32_t>(known - segments_.begin()), 0, at.offset, tensor.bytes};
      std::memcpy(next, &entry, sizeof(entry));
    } catch (const Error& error) {
      throw Error(error.code(),
                  "shm: offer " + std::to_string(offer.id) + ": tensor " + std::to_string(i) + ": " + error.what());
    }
  }
  if (segments_.size() > kMaxSegmentsOfOffer) {
    throw Error(ErrorCode::kResourceExhausted, "shm: offer " + std::to_string(offer.id) + " lies in " +
                                                   std::to_string(segments_.size()) + " segments, expected at most " +
                                                   std::to_string(kMaxSegmentsOfOffer));
  }
  const Header header{kMagic, 1, offer.tensors.size()};
  std::memcpy(file_.memory.base(), &header, sizeof(header));
}

WrittenTable::~WrittenTable() {
  // An exchange, not a store, so that receivers see it before anything that is written to the offer's memory
  // afterwards.
  __atomic_exchange_n(LiveOf(file_.memory), 0, __ATOMIC_SEQ_CST);
}

ReadTable::ReadTable(const UniqueFd& fd, std::vector<std::shared_ptr<const Mapping>> segments)
    : segments_(std::move(segments)) {
  IdentityOf(fd);
  memory_ = MapReadOnly(fd);
  Header header{};
  if (memory_.size() < sizeof(header)) Fail("too short");
  std::memcpy(&header, memory_.base(), sizeof(header));
  if (header.magic != kMagic) Fail("not the magic 'LCSHMTBL'");
  const std::size_t room = memory_.size() - sizeof(header);
  if (room % sizeof(Entry) != 0 || room / sizeof(Entry) != header.tensors) {
    Fail(std::to_string(header.tensors) + " tensors in " + std::to_string(memory_.size()) + " bytes");
  }
  std::vector<Entry> entries(header.tensors);  // a copy, so that what is used is what was checked
  if (room != 0) std::memcpy(entries.data(), memory_.base() + sizeof(header), room);
  tensors_.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (entry.bytes == 0) {
      tensors_.emplace_back();
      continue;
    }
    if (entry.segment >= segments_.size()) Fail("segment " + std::to_string(entry.segment) + " did not come with it");
    const Mapping& segment = *segments_[entry.segment];
    if (entry.offset > segment.size() || entry.bytes > segment.size() - entry.offset) {
      Fail("tensor " + std::to_string(tensors_.size()) + " leaves its segment: offset " + std::to_string(entry.offset) +
           ", " + std::to_string(entry.bytes) + " bytes, expected inside " + std::to_string(segment.size()));
    }
    tensors_.push_back({segment.base() + entry.offset, entry.bytes});
  }
}

bool ReadTable::live() const { return __atomic_load_n(LiveOf(memory_), __ATOMIC_SEQ_CST) == 1; }

}  // namespace layercast::shm_channel

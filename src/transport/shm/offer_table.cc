#include "src/transport/shm/offer_table.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
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

// What `live` holds as long as the offer is there. Freed tables make room for others, so a receiver may look for it
// where another table lies by then. No other word of a table has the highest bit set, and no offer has the number of an
// earlier one.
std::uint64_t LiveMark(std::uint64_t offer_id) { return offer_id | std::uint64_t{1} << 63; }

// The one field that changes while both ends have the table mapped.
std::uint64_t* LiveOf(std::byte* table) { return reinterpret_cast<std::uint64_t*>(table + offsetof(Header, live)); }

[[noreturn]] void Fail(const std::string& what) { throw Error(ErrorCode::kCorrupt, "the table of an offer: " + what); }

}  // namespace

WrittenTable::WrittenTable(const Offer& offer, Arena& tables, const Arena& arena)
    : memory_(tables, sizeof(Header) + offer.tensors.size() * sizeof(Entry)),
      place_(tables.Locate(memory_.data(), memory_.size())) {
  std::byte* next = memory_.data() + sizeof(Header);
  for (std::size_t i = 0; i < offer.tensors.size(); ++i, next += sizeof(Entry)) {
    const OfferedTensor& tensor = offer.tensors[i];
    Entry entry{};
    try {
      if (tensor.bytes != 0) {
        const Location at = arena.Locate(tensor.data, tensor.bytes);
        auto known = std::find(segments_.begin(), segments_.end(), at.segment);
        if (known == segments_.end()) known = segments_.insert(segments_.end(), at.segment);
        entry = {static_cast<std::uint32_t>(known - segments_.begin()), 0, at.offset, tensor.bytes};
      }
    } catch (const Error& error) {
      throw Error(error.code(),
                  "shm: offer " + std::to_string(offer.id) + ": tensor " + std::to_string(i) + ": " + error.what());
    }
    std::memcpy(next, &entry, sizeof(entry));
  }
  if (segments_.size() > kMaxSegmentsOfOffer) {
    throw Error(ErrorCode::kResourceExhausted, "shm: offer " + std::to_string(offer.id) + " lies in " +
                                                   std::to_string(segments_.size()) + " segments, expected at most " +
                                                   std::to_string(kMaxSegmentsOfOffer));
  }
  const Header header{kMagic, LiveMark(offer.id), offer.tensors.size()};
  std::memcpy(memory_.data(), &header, sizeof(header));
}

WrittenTable::~WrittenTable() {
  // An exchange, not a store, so that receivers see it before anything that is written to the offer's memory
  // afterwards.
  __atomic_exchange_n(LiveOf(memory_.data()), 0, __ATOMIC_SEQ_CST);
}

ReadTable::ReadTable(std::uint64_t offer_id, TablePlace place, std::vector<std::shared_ptr<const Mapping>> segments)
    : offer_id_(offer_id), place_(std::move(place)), segments_(std::move(segments)) {
  const std::vector<std::byte> table = Copy();
  Header header{};
  std::memcpy(&header, table.data(), sizeof(header));
  if (header.magic != kMagic) Fail("not the magic 'LCSHMTBL'");
  const std::size_t room = table.size() - sizeof(header);
  if (room % sizeof(Entry) != 0 || room / sizeof(Entry) != header.tensors) {
    Fail(std::to_string(header.tensors) + " tensors in " + std::to_string(table.size()) + " bytes");
  }
  std::vector<Entry> entries(header.tensors);
  if (room != 0) std::memcpy(entries.data(), table.data() + sizeof(header), room);
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

// A copy, so that what is used is what was checked. It is a table only if the offer was still there afterwards.
std::vector<std::byte> ReadTable::Copy() const {
  const std::size_t size = place_.file->size();
  if (place_.offset > size || place_.bytes > size - place_.offset || place_.bytes < sizeof(Header) ||
      place_.offset % alignof(Header) != 0) {
    Fail(std::to_string(place_.bytes) + " bytes at " + std::to_string(place_.offset) + " of a file of " +
         std::to_string(size));
  }
  const std::byte* const table = place_.file->base() + place_.offset;
  std::vector<std::byte> copy(table, table + place_.bytes);
  if (!live()) throw Error(ErrorCode::kNotFound, "offer " + std::to_string(offer_id_) + " is not there");
  return copy;
}

bool ReadTable::live() const {
#ifdef __SANITIZE_THREAD__  // which knows no fences
  std::atomic_signal_fence(std::memory_order_acquire);
#else
  std::atomic_thread_fence(std::memory_order_acquire);  // what was read before this was read before the mark is
#endif
  return __atomic_load_n(LiveOf(place_.file->base() + place_.offset), __ATOMIC_SEQ_CST) == LiveMark(offer_id_);
}

}  // namespace layercast::shm_channel

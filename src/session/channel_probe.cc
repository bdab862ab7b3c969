#include "src/session/channel_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest.h"
#include "src/session/chunk_digests.h"
#include "src/session/chunk_window.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;

constexpr std::size_t kProbeChunk = std::size_t{1} << 20;  // a copying channel's piece: a slow link brings some in time
constexpr std::uint32_t kProbeChunks = kProbeBytes / kProbeChunk;
// Long enough that one late wake-up does not decide; a pass that takes longer than the second is measurement enough.
constexpr std::chrono::milliseconds kMeasuredTime{20};
constexpr std::chrono::milliseconds kSlowPass{200};
constexpr int kMostPasses = 8;

// Nothing that repeats within a page: what compresses or dedups would measure too well.
void FillProbe(std::span<std::byte> bytes) {
  std::uint64_t state = 0;
  std::array<std::uint64_t, 4096> block{};
  static_assert(kProbeBytes % sizeof(block) == 0);
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(block)) {
    for (std::uint64_t& word : block) word = state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + at, block.data(), sizeof(block));
  }
}

// Of the probe's chunks; the same in every process.
const std::array<Digest, kProbeChunks>& ProbeDigests() {
  static const std::array<Digest, kProbeChunks> digests = [] {
    std::vector<std::byte> bytes(kProbeBytes);
    FillProbe(bytes);
    std::array<Digest, kProbeChunks> made;
    for (std::uint32_t i = 0; i < kProbeChunks; ++i) {
      made[i] = DigestOf(std::span(bytes).subspan(i * kProbeChunk, kProbeChunk));
    }
    return made;
  }();
  return digests;
}

// What was fetched and digested, and how long it took.
struct Pass {
  std::size_t bytes = 0;
  Clock::duration elapsed{};
  bool whole() const { return bytes == kProbeBytes; }
  double gb_per_s() const { return static_cast<double>(bytes) * 1e-9 / std::chrono::duration<double>(elapsed).count(); }
  void operator+=(const Pass& other) {
    bytes += other.bytes;
    elapsed += other.elapsed;
  }
};

// Where the deadline ends it, what has come by then; the rest stays under way.
Pass TimeOnePass(ChunkWindow& window, Deadline deadline) {
  const auto begin = Clock::now();
  Pass pass;
  for (std::uint32_t i = 0; i < kProbeChunks; ++i) {
    const Region whole_chunk{.tensor = 0, .offset = i * kProbeChunk, .row_bytes = kProbeChunk, .rows = 1, .stride = 0};
    window.Submit(i, kProbeOffer, {&whole_chunk, 1}, kProbeChunk);
  }
  while (!window.empty()) {
    const std::optional<ArrivedChunk> arrived = window.Poll(deadline);
    if (!arrived) break;
    const std::uint32_t chunk = arrived->chunk;
    if (arrived->digest() != ProbeDigests()[chunk]) {
      throw Error(ErrorCode::kCorrupt, "chunk " + std::to_string(chunk) + " of the probe arrived with other bytes");
    }
    window.Done(chunk);
    pass.bytes += kProbeChunk;
  }
  pass.elapsed = Clock::now() - begin;
  return pass;
}

// Before the memory that its chunks go to is gone.
class Closing {
 public:
  explicit Closing(FetchingEnd& end) : end_(end) {}
  ~Closing() { end_.Close(); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  FetchingEnd& end_;
};

}  // namespace

ProbeOffer::ProbeOffer(MemoryResource& arena) : bytes_(arena, kProbeBytes) { FillProbe(bytes_.span()); }

Offer ProbeOffer::offer() const { return {.id = kProbeOffer, .tensors = {{bytes_.data(), bytes_.size()}}}; }

double MeasureChannel(FetchingEnd& end, MemoryResource& memory, Deadline deadline) {
  ProbeDigests();  // not a part of the measurement
  HostChunkMemory place(memory);
  ChunkWindow window(end, {.slots = kProbeChunks, .places = {place}});
  const Closing closing(end);
  // The first pass maps and faults in memory, and lets TCP open its window: it counts only where no second is worth
  // while.
  const Pass first = TimeOnePass(window, deadline);
  if (first.bytes == 0) throw Error(ErrorCode::kDeadlineExceeded, "nothing of the probe arrived in time");
  if (!first.whole() || first.elapsed >= kSlowPass) return first.gb_per_s();
  Pass all;
  for (int passes = 0; all.elapsed < kMeasuredTime && passes < kMostPasses; ++passes) {
    const Pass pass = TimeOnePass(window, deadline);
    all += pass;
    if (!pass.whole()) break;
  }
  return (all.bytes == 0 ? first : all).gb_per_s();
}

}  // namespace layercast

#include "src/session/choose/channel_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/session/chunks/chunk_digests.h"
#include "src/session/chunks/chunk_window.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;

// What one pass fetches: the probe's first bytes, in chunks of equal size.
struct Cut {
  std::size_t chunk_bytes;
  std::uint32_t chunks;
  constexpr std::size_t bytes() const { return chunk_bytes * chunks; }
};
constexpr Cut kWhole{.chunk_bytes = std::size_t{1} << 20, .chunks = 16};   // a copying channel's pieces
constexpr Cut kBegin{.chunk_bytes = std::size_t{64} << 10, .chunks = 16};  // a slow link brings some of it in time
static_assert(kWhole.bytes() == kProbeBytes);

// How long to measure: long enough that one late wake-up does not decide. A pass that takes longer is enough by itself.
constexpr std::chrono::milliseconds kMeasuredTime{20};
constexpr std::chrono::milliseconds kSlowPass{200};
constexpr int kMostPasses = 8;

// Fills it with bytes that do not repeat within a page: bytes that can be compressed or deduplicated would measure too
// fast.
void FillProbe(std::span<std::byte> bytes) {
  std::uint64_t state = 0;
  std::array<std::uint64_t, 4096> block{};
  static_assert(kProbeBytes % sizeof(block) == 0);
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(block)) {
    for (std::uint64_t& word : block) word = state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + at, block.data(), sizeof(block));
  }
}

// The digests of a cut's chunks, which are the same in every process.
std::vector<Digest> DigestsOf(const Cut& cut, std::span<const std::byte> probe) {
  std::vector<Digest> made;
  for (std::uint32_t i = 0; i < cut.chunks; ++i) {
    made.push_back(DigestOf(probe.subspan(i * cut.chunk_bytes, cut.chunk_bytes)));
  }
  return made;
}

struct ProbeDigests {
  std::vector<Digest> begin;
  std::vector<Digest> whole;
  static const ProbeDigests& Known() {
    static const ProbeDigests digests = [] {
      std::vector<std::byte> bytes(kProbeBytes);
      FillProbe(bytes);
      return ProbeDigests{DigestsOf(kBegin, bytes), DigestsOf(kWhole, bytes)};
    }();
    return digests;
  }
};

// How much a pass has fetched and digested, and how long that took.
struct Pass {
  std::size_t bytes = 0;
  Clock::duration elapsed{};
  double gb_per_s() const { return static_cast<double>(bytes) * 1e-9 / std::chrono::duration<double>(elapsed).count(); }
  void operator+=(const Pass& other) {
    bytes += other.bytes;
    elapsed += other.elapsed;
  }
};

// Times a pass. If the deadline ends it, the result is what had come by then, up to the moment when the last of it
// came; the rest stays under way.
Pass TimeOnePass(ChunkWindow& window, const Cut& cut, std::span<const Digest> digests, Deadline deadline) {
  const auto begin = Clock::now();
  Pass pass;
  for (std::uint32_t i = 0; i < cut.chunks; ++i) {
    const Region chunk{
        .tensor = 0, .offset = i * cut.chunk_bytes, .row_bytes = cut.chunk_bytes, .rows = 1, .stride = 0};
    window.Submit(i, kProbeOffer, {&chunk, 1}, cut.chunk_bytes);
  }
  while (!window.empty()) {
    const std::optional<ArrivedChunk> arrived = window.Poll(deadline);
    if (!arrived) break;
    const std::uint32_t chunk = arrived->chunk;
    if (arrived->digest() != digests[chunk]) {
      throw Error(ErrorCode::kCorrupt, "chunk " + std::to_string(chunk) + " of the probe arrived with other bytes");
    }
    window.Done(chunk);
    pass.bytes += cut.chunk_bytes;
    pass.elapsed = Clock::now() - begin;
  }
  return pass;
}

// Closes the end when a scope is left, before the memory that its chunks go to is freed.
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
  const ProbeDigests& digests = ProbeDigests::Known();  // not a part of the measurement
  HostChunkMemory place(memory);
  ChunkWindow window(end, {.slots = kWhole.chunks, .places = {place}});
  const Closing closing(end);
  const Pass begin = TimeOnePass(window, kBegin, digests.begin, deadline);
  if (begin.bytes == 0) throw Error(ErrorCode::kDeadlineExceeded, "nothing of the probe arrived in time");
  if (begin.bytes < kBegin.bytes()) return begin.gb_per_s();
  const auto time_whole = [&] { return TimeOnePass(window, kWhole, digests.whole, deadline); };
  // The first pass maps and faults in memory, and lets TCP open its window. It counts only if it was so slow that a
  // second is not worth while.
  const Pass first = time_whole();
  if (first.bytes == 0) return begin.gb_per_s();
  if (first.bytes < kProbeBytes || first.elapsed >= kSlowPass) return first.gb_per_s();
  Pass all;
  for (int passes = 0; all.elapsed < kMeasuredTime && passes < kMostPasses; ++passes) {
    const Pass pass = time_whole();
    all += pass;
    if (pass.bytes < kProbeBytes) break;
  }
  return (all.bytes == 0 ? first : all).gb_per_s();
}

}  // namespace layercast

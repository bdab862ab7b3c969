// FORMAT.md, "Schedule", specifies the encoding that is written and read here.
#include "src/wire/schedule.h"

#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"
#include "src/base/digest/digest.h"

namespace layercast {
namespace {

constexpr std::string_view kMagic = "LCSC";
constexpr std::uint32_t kMostChunks = 1U << 24;
constexpr std::size_t kRegionBytes = 4 + 8 + 8 + 8 + 8;
constexpr std::size_t kChunkBytes = 4;

// Why the region is not in canonical form; empty if it is.
std::string Problem(const Region& region) {
  if (region.rows == 0 || region.row_bytes == 0) return "holds no bytes";
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(region.rows, region.row_bytes, &bytes) || bytes >> 63 != 0) return "exceeds 2^63 bytes";
  if (region.rows == 1 && region.stride != 0) return "has one row, and a stride";
  if (region.rows > 1 && region.stride < region.row_bytes) return "has rows that overlap";
  if (region.rows > 1 && region.stride == region.row_bytes) return "has rows without gaps, which are one row";
  return {};
}

std::string Describe(const Region& region) {
  return "region of tensor " + std::to_string(region.tensor) + " (offset " + std::to_string(region.offset) + ", " +
         std::to_string(region.rows) + " rows of " + std::to_string(region.row_bytes) + " bytes, stride " +
         std::to_string(region.stride) + ") ";
}

Region Canonical(Region region) {
  if (region.rows > 1 && region.stride == region.row_bytes)
    region = {region.tensor, region.offset, region.num_bytes(), 1, 0};
  if (region.rows == 1) region.stride = 0;
  return region;
}

Region GetRegion(ByteReader& in) {
  Region region;
  region.tensor = in.Get<std::uint32_t>("a region's tensor");
  region.offset = in.Get<std::uint64_t>("a region's offset");
  region.row_bytes = in.Get<std::uint64_t>("a region's row_bytes");
  region.rows = in.Get<std::uint64_t>("a region's rows");
  region.stride = in.Get<std::uint64_t>("a region's stride");
  if (const std::string problem = Problem(region); !problem.empty()) in.Fail(Describe(region) + problem);
  return region;
}

// Reads how many regions each chunk has, and checks that the regions of all chunks take exactly the remaining bytes.
std::vector<std::uint32_t> GetCounts(ByteReader& in) {
  if (in.GetText(kMagic.size(), "the magic") != kMagic) in.Fail("this is not a schedule: its magic is another");
  const auto chunks = in.Get<std::uint32_t>("the number of chunks");
  // Checked before anything is allocated for the chunks.
  if (chunks > kMostChunks || chunks > in.remaining() / (kChunkBytes + kRegionBytes)) {
    in.Fail(std::to_string(chunks) + " chunks do not fit the " + std::to_string(in.remaining()) + " bytes that follow");
  }
  std::vector<std::uint32_t> counts(chunks);
  std::uint64_t regions = 0;
  for (std::uint32_t& count : counts) {
    count = in.Get<std::uint32_t>("a chunk's number of regions");
    if (count == 0) in.Fail("a chunk without regions");
    regions += count;
  }
  if (regions * kRegionBytes != in.remaining()) {
    in.Fail(std::to_string(regions) + " regions take " + std::to_string(regions * kRegionBytes) + " bytes, got " +
            std::to_string(in.remaining()));
  }
  return counts;
}

}  // namespace

void Schedule::Add(std::span<const Region> regions) {
  if (chunks_.size() == kMostChunks) throw Error(ErrorCode::kInvalidArgument, "schedule: more than 2^24 chunks");
  if (regions.empty()) throw Error(ErrorCode::kInvalidArgument, "schedule: a chunk without regions");
  Chunk chunk{static_cast<std::uint32_t>(regions_.size()), static_cast<std::uint32_t>(regions.size()), 0};
  for (const Region& given : regions) {
    const Region region = Canonical(given);
    if (const std::string problem = Problem(region); !problem.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "schedule: " + Describe(region) + problem);
    }
    chunk.num_bytes += region.num_bytes();
    total_bytes_ += region.num_bytes();
    if (total_bytes_ >> 63 != 0) throw Error(ErrorCode::kInvalidArgument, "schedule: exceeds 2^63 bytes");
    regions_.push_back(region);
  }
  chunks_.push_back(chunk);
}

std::vector<std::byte> Schedule::Encode() const {
  ByteWriter out;
  out.Reserve(kMagic.size() + 4 + chunks_.size() * kChunkBytes + regions_.size() * kRegionBytes);
  out.PutBytes(kMagic);
  out.Put(static_cast<std::uint32_t>(chunks_.size()));
  for (const Chunk& chunk : chunks_) out.Put(chunk.num_regions);
  for (const Region& region : regions_) {
    out.Put(region.tensor, region.offset, region.row_bytes, region.rows, region.stride);
  }
  return std::move(out).Take();
}

Schedule Schedule::Decode(std::span<const std::byte> bytes) {
  ByteReader in("schedule", bytes);
  const std::vector<std::uint32_t> counts = GetCounts(in);
  Schedule schedule;
  schedule.chunks_.reserve(counts.size());
  schedule.regions_.reserve(in.remaining() / kRegionBytes);
  std::vector<Region> regions;
  for (const std::uint32_t count : counts) {
    regions.clear();
    for (std::uint32_t i = 0; i < count; ++i) regions.push_back(GetRegion(in));
    try {
      schedule.Add(regions);
    } catch (const Error& error) {
      in.Fail(error.what());
    }
  }
  return schedule;
}

Digest Schedule::digest() const { return DigestOf(Encode()); }

}  // namespace layercast

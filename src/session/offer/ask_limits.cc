#include "src/session/offer/ask_limits.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/tensor/region.h"

namespace layercast {
namespace {

// How often a schedule may read each byte, on average. Tied weights and drafts need some bytes twice, and modules that
// share one layer's weights need them once for each module.
constexpr std::uint64_t kMostReadings = 16;

constexpr std::uint64_t kAmaxShare = 64;  // of the version's bytes, all magnitudes together have one such part

void CheckAmaxRequest(const AmaxRequest& request, const Manifest& manifest) {
  if (request.tensor >= manifest.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "magnitudes of tensor " + std::to_string(request.tensor) + ": there is no such tensor");
  }
  CheckKept(AsRead(manifest.entry(request.tensor).spec, request).shape, request.kept);
}

void ExpectAtMost(std::uint64_t most, std::uint64_t bytes, const std::string& of_what, const std::string& tensor) {
  if (bytes <= most) return;
  throw Error(ErrorCode::kResourceExhausted, "magnitudes: expected at most " + std::to_string(most) + " bytes " +
                                                 of_what + ", got " + std::to_string(bytes) + " up to tensor " +
                                                 Quote(tensor));
}

}  // namespace

void CheckNames(const wire::Hello& hello) {
  CheckName("engine", hello.engine);
  CheckName("lineage", hello.lineage);
  CheckName("boot id", hello.host.boot_id);
  CheckName("network namespace", hello.host.network);
  CheckName("user", hello.host.user);
  CheckName("process", hello.host.process);
}

void CheckSchedule(const Schedule& schedule, const Manifest& manifest, bool stream) {
  for (const Chunk& chunk : schedule.chunks()) {
    const std::span<const Region> regions = schedule.RegionsOf(chunk);
    if (regions.empty()) throw Error(ErrorCode::kInvalidArgument, "the schedule has a chunk without regions");
    for (const Region& region : regions) {
      if (region.tensor >= manifest.size()) {
        throw Error(ErrorCode::kInvalidArgument, "the schedule asks for tensor " + std::to_string(region.tensor) +
                                                     ", expected one of " + std::to_string(manifest.size()));
      }
      CheckInside(region, static_cast<std::uint64_t>(manifest.entry(region.tensor).spec.num_bytes()));
      if (stream && region.tensor != regions.front().tensor) {
        throw Error(ErrorCode::kInvalidArgument, "the schedule has a chunk of tensors " +
                                                     std::to_string(regions.front().tensor) + " and " +
                                                     std::to_string(region.tensor) + ": a stream's have one");
      }
    }
  }
}

void CheckReadings(const Schedule& schedule, const Manifest& manifest) {
  const std::uint64_t most = kMostReadings * manifest.total_bytes();
  if (schedule.total_bytes() <= most) return;
  throw Error(ErrorCode::kResourceExhausted, "the schedule asks for " + std::to_string(schedule.total_bytes()) +
                                                 " bytes, expected at most " + std::to_string(most) + ": " +
                                                 std::to_string(kMostReadings) + " times the version's " +
                                                 std::to_string(manifest.total_bytes()));
}

std::uint64_t AmaxBytes(const AmaxRequest& request, const Manifest& manifest) {
  const TensorSpec spec = AsRead(manifest.entry(request.tensor).spec, request);
  return static_cast<std::uint64_t>(NumKept(spec.shape, request.kept)) * sizeof(float);
}

void CheckAmaxRequests(std::span<const AmaxRequest> requests, const Manifest& manifest) {
  std::set<std::uint32_t> asked;
  std::map<std::uint32_t, std::uint64_t> bytes_before;  // by chunk
  std::uint64_t bytes = 0;
  for (const AmaxRequest& request : requests) {
    CheckAmaxRequest(request, manifest);
    const std::string& name = manifest.entry(request.tensor).spec.name;
    if (!asked.insert(request.tensor).second) {
      throw Error(ErrorCode::kInvalidArgument,
                  "magnitudes of tensor " + Quote(name) + ": expected to be asked for them once, got it twice");
    }
    const std::uint64_t own = AmaxBytes(request, manifest);
    ExpectAtMost(kMostAmaxBytes, bytes_before[request.before_chunk] += own, "for one chunk", name);
    ExpectAtMost(std::max(kMostAmaxBytes, manifest.total_bytes() / kAmaxShare), bytes += own, "in all", name);
  }
}

}  // namespace layercast

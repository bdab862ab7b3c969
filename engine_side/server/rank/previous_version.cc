#include "engine_side/server/rank/previous_version.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/reload/sources/kept_source.h"
#include "engine_side/server/group/reload_request.h"
#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast {
namespace {

std::size_t BytesOf(const CapturedBuffer& buffer) {
  return static_cast<std::size_t>(TensorSpec{buffer.name, buffer.dtype, buffer.shape}.num_bytes());
}

std::size_t BytesOf(const CapturedBuffers& captured) {
  std::size_t bytes = 0;
  for (const CapturedBuffer& buffer : captured.buffers()) bytes += BytesOf(buffer);
  return bytes;
}

// What the host can still give away; 0: not known.
std::size_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kField = "MemAvailable:";
    if (line.starts_with(kField)) return std::stoull(line.substr(kField.size())) * 1024;
  }
  return 0;
}

}  // namespace

// Over what is kept, in the order of the buffers.
class PreviousVersion::Walk final : public WeightsIterator {
 public:
  explicit Walk(const PreviousVersion& kept) : kept_(kept) {}

  std::optional<NamedTensor> Next() override {
    if (next_ == kept_.captured_.buffers().size()) return std::nullopt;
    const CapturedBuffer& buffer = kept_.captured_.buffers()[next_++];
    const std::byte* const data = kept_.memory_.data() + std::exchange(at_, at_ + BytesOf(buffer));
    return NamedTensor{.name = buffer.name,
                       .tensor = {.dtype = buffer.dtype, .shape = buffer.shape, .data = data, .device = {}},
                       .owner = nullptr};
  }

 private:
  const PreviousVersion& kept_;
  std::size_t next_ = 0;
  std::size_t at_ = 0;
};

PreviousVersion::PreviousVersion(const CapturedBuffers& captured) : captured_(captured) {
  const std::size_t bytes = BytesOf(captured);
  const std::size_t available = AvailableMemory();
  if (available != 0 && bytes > available) {
    throw Error(ErrorCode::kResourceExhausted, "--keep-previous: expected " + std::to_string(bytes) +
                                                   " bytes of host memory for this rank's copy, got " +
                                                   std::to_string(available));
  }
  memory_ = Buffer(host_, std::max<std::size_t>(bytes, 1));
  log::info("the previous version is kept in {} bytes of host memory", bytes);
}

void PreviousVersion::Keep(const Receiver& receiver) {
  const std::lock_guard lock(mutex_);
  kept_ = false;
  std::size_t at = 0;
  const CapturedBuffers clean = receiver.clean();
  noise_ = receiver.noise();
  for (const CapturedBuffer& buffer : clean.buffers()) {
    const std::vector<std::byte> bytes = clean.Read(buffer);
    std::ranges::copy(bytes, memory_.data() + at);
    at += bytes.size();
  }
  kept_ = true;
}

ReloadSource PreviousVersion::Source(const Version& version, const Digest& served) const {
  const std::lock_guard lock(mutex_);
  if (!kept_) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this rank has no previous version: its process has committed none over another since it began");
  }
  std::vector<TensorSpec> specs;
  for (const CapturedBuffer& buffer : captured_.buffers()) specs.push_back({buffer.name, buffer.dtype, buffer.shape});
  ReloadSource source = FromKept(std::make_unique<Walk>(*this), std::move(specs), version, served);
  source.noise = noise_.value_or(Noise());  // as it was drawn
  return source;
}

ReloadSource SourceOf(const Json& params, int rank, const PreviousVersion* previous) {
  if (!IsGiven(params, "kept")) return SourceFromJson(params, rank);
  if (previous == nullptr) throw Error(ErrorCode::kFailedPrecondition, "this engine keeps no previous version");
  const Json& digest = params["kept"].at("served_digests").at(static_cast<std::size_t>(rank));
  return previous->Source(VersionFromJson(params["kept"].at("version")),
                          Digest::FromHex(digest.get<std::string>()).value_or(Digest{}));
}

}  // namespace layercast

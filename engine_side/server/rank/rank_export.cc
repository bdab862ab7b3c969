#include "engine_side/server/rank/rank_export.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "engine_side/reload/layout/export_label.h"
#include "engine_side/server/rank/comparison.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/checkpoint/rank_files.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "src/control/json_forms.h"

namespace layercast {
namespace {

constexpr std::int64_t kMostPartBytes = std::int64_t{4} << 30;

// Groups consecutive buffers into parts of at most kMostPartBytes. A larger buffer is a part by itself.
std::vector<std::vector<const CapturedBuffer*>> Parts(const CapturedBuffers& captured) {
  std::vector<std::vector<const CapturedBuffer*>> parts(1);
  std::int64_t bytes = 0;
  for (const CapturedBuffer& buffer : captured.buffers()) {
    const std::int64_t size = NumBytes(buffer.dtype, buffer.shape);
    if (bytes + size > kMostPartBytes && !parts.back().empty()) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(&buffer);
    bytes += size;
  }
  return parts;
}

}  // namespace

Json ExportRank(const CapturedBuffers& captured, const std::string& directory, const ParallelConfig& parallel,
                const std::string& recipe, const Version& version) {
  const SafetensorsWriter::Metadata label = ExportLabel::ToWrite(version, parallel, recipe, captured.ServedDigest());
  Json result = {{"files", Json::array()}, {"tensors", captured.buffers().size()}, {"bytes", 0}};
  std::int64_t bytes = 0;
  int part = 0;
  for (const auto& buffers : Parts(captured)) {
    const std::string name = RankFileName(parallel.engine_rank(), part++);
    std::vector<TensorSpec> specs;
    for (const CapturedBuffer* buffer : buffers) specs.push_back({buffer->name, buffer->dtype, buffer->shape});
    SafetensorsWriter writer(std::filesystem::path(directory) / name, specs, label);
    for (const CapturedBuffer* buffer : buffers) {
      const std::vector<std::byte> served = captured.Read(*buffer);
      writer.Write(buffer->name, served);
      bytes += static_cast<std::int64_t>(served.size());
    }
    writer.Commit();
    result["files"].push_back(name);
  }
  result["bytes"] = bytes;
  return result;
}

Json CompareRank(const Receiver& receiver, std::unique_ptr<Module> model, ParallelConfig parallel,
                 const QuantizationConfig& quantization, const CheckpointSource& checkpoint,
                 const std::stop_token& stop) {
  const CapturedBuffers& captured = receiver.captured();
  HostMemory memory;
  std::vector<Buffer> cold_memory;
  std::vector<CapturedBuffer> cold_buffers;
  for (const CapturedBuffer& served : captured.buffers()) {
    const auto bytes = static_cast<std::size_t>(NumBytes(served.dtype, served.shape));
    cold_memory.emplace_back(memory, std::max<std::size_t>(bytes, 1));
    cold_buffers.push_back({.name = served.name,
                            .address = cold_memory.back().data(),
                            .dtype = served.dtype,
                            .shape = served.shape,
                            .strides = {},
                            .device = {}});
  }
  Receiver cold(std::move(model), parallel, quantization, CapturedBuffers::Adopt(std::move(cold_buffers)));
  constexpr std::uint64_t kItsOnly = 1;  // the receiver counts its attempts
  const std::stop_callback give_up(stop, [&cold] { cold.Cancel(kItsOnly); });
  ReloadSource source = FromCheckpoint(checkpoint);
  source.allow_config_change = true;  // bytes are compared; what differs besides is told
  source.noise = receiver.noise().value_or(Noise());
  const ReloadReport report = cold.ReloadWeights(std::move(source));

  Comparison comparison(parallel.engine_rank());
  for (const CapturedBuffer& served : captured.buffers()) {
    if (stop.stop_requested()) throw Error(ErrorCode::kCancelled, "the comparison was given up");
    comparison.Add(served.name, captured.Read(served), cold.captured().Read(*cold.captured().Find(served.name)));
  }
  Json result = std::move(comparison).ToJson();
  result["config_changes"] = report.config_changes;
  result["noise"] = NoiseToJson(report.noise);
  return result;
}

}  // namespace layercast

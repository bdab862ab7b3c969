// A small random model as an engine would hold it: this rank's kernel-format buffers, made without checkpoint, module
// tree or torch. Every element is a function of its name and its place in the whole weight, so ranks fit together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine_side/engine/decoder_config.h"
#include "layercast/captured_buffers.h"
#include "layercast/parallel.h"

namespace layercast {

enum class TinyScale : std::uint8_t { kNone, kTensor, kRow, kBlock };

struct TinyOptions {
  DType dtype = DType::kF32;
  TinyScale scale = TinyScale::kNone;  // of linear weights; other than kNone: they are f8_e4m3
  bool qk_norm = true;
  bool bias = true;  // of qkv, o and down
  bool tied = false;
  std::size_t window = 0;  // of layer 1
};

DecoderConfig TinyConfig(const TinyOptions& options);

// Resource: owns the memory.
class TinyModel {
 public:
  TinyModel(const TinyOptions& options, const ParallelConfig& parallel);

  const std::vector<CapturedBuffer>& buffers() const { return buffers_; }
  CapturedBuffer& buffer(const std::string& name);

 private:
  void AddLayer(std::size_t index);
  void AddVector(const std::string& name, std::size_t size, double center, std::size_t first = 0);
  // Rows and columns are given by their indices in the whole weight.
  void AddMatrix(const std::string& path, const std::vector<std::size_t>& rows, const std::vector<std::size_t>& cols,
                 bool quantized);
  std::byte* AddBuffer(const std::string& name, DType dtype, Shape shape);

  TinyOptions options_;
  DecoderConfig config_;
  ParallelConfig parallel_;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<CapturedBuffer> buffers_;
};

}  // namespace layercast

// A small random model as an engine would hold it: its module tree, and this rank's kernel-format buffers, made without
// checkpoint or torch. Every element is a function of its name and its place in the whole weight, so ranks fit
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/engine/rotary_table.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/decoder.h"
#include "layercast/parallel.h"

namespace layercast {

enum class TinyScale : std::uint8_t { kNone, kTensor, kRow, kBlock };

struct TinyOptions {
  DType dtype = DType::kF32;
  TinyScale scale = TinyScale::kNone;  // of linear weights; other than kNone: they are f8_e4m3
  bool qk_norm = true;
  bool bias = true;  // of linear layers
  bool tied = false;
  std::size_t window = 0;  // of layer 1
  bool experts = false;    // layer 1 is a mixture: some experts, and a shared one
};

struct TinySizes {
  static constexpr std::size_t kLayers = 2, kHidden = 24, kIntermediate = 40, kHeads = 4, kKvHeads = 2, kHeadDim = 10;
  static constexpr std::size_t kVocabulary = 101, kMaxTokens = 3000, kExperts = 3;
};

// The frequencies by their formula, without torch.
Rope TinyRope(const RotaryEmbedding& embedding);

// Resource: owns the memory.
class TinyModel {
 public:
  TinyModel(const TinyOptions& options, const ParallelConfig& parallel);

  const Module& tree() const { return *tree_; }
  const std::vector<CapturedBuffer>& buffers() const { return buffers_; }
  CapturedBuffer& buffer(const std::string& name);
  // Of this rank's rows and columns of a weight, by its buffer's name, which ones of the whole weight they are.
  struct Places {
    std::vector<std::size_t> rows, columns;
  };
  const Places& places(const std::string& name) const { return places_.at(name); }

 private:
  void AddLayer(std::size_t index);
  // This rank's, of the intermediate dimension and of the rows of gate over up.
  std::vector<std::size_t> Intermediate() const;
  std::vector<std::size_t> GateUp() const;
  void AddMlp(const std::string& path, bool bias);
  void AddMixture(const std::string& path);
  void AddStack(const std::string& name, const std::vector<std::size_t>& rows, const std::vector<std::size_t>& cols);
  void AddVector(const std::string& name, std::size_t size, double center);
  // Rows and columns are given by their indices in the whole weight.
  void AddBias(const std::string& name, const std::vector<std::size_t>& rows);
  void AddMatrix(const std::string& path, const std::vector<std::size_t>& rows, const std::vector<std::size_t>& cols,
                 bool quantized);
  std::byte* AddBuffer(const std::string& name, DType dtype, Shape shape);

  TinyOptions options_;
  ParallelConfig parallel_;
  std::unique_ptr<Module> tree_;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<CapturedBuffer> buffers_;
  std::map<std::string, Places> places_;
};

}  // namespace layercast

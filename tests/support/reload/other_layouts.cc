#include "tests/support/reload/other_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace layercast::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr auto kSuffix = NameRule::Match::kSuffix;

void Put(Weights& weights, const std::string& name, DType dtype, Shape shape, const Bytes& bytes) {
  weights.AddCounting({name, dtype, std::move(shape)}, 0);
  weights.bytes(weights.size() - 1) = bytes;
}

const Bytes& BytesOf(const Weights& weights, const std::string& name) { return weights.bytes(IndexOf(weights, name)); }

Bytes Transposed(const Bytes& bytes, std::size_t rows, std::size_t cols) {
  const std::size_t size = bytes.size() / rows / cols;
  Bytes out(bytes.size());
  for (std::size_t i = 0; i < rows * cols; ++i) {
    std::memcpy(out.data() + (i % cols * rows + i / cols) * size, bytes.data() + i * size, size);
  }
  return out;
}

// One element of each after the other.
Bytes Turns(const Bytes& even, const Bytes& odd, std::size_t size) {
  Bytes out(2 * even.size());
  for (std::size_t at = 0; at < even.size(); at += size) {
    std::memcpy(out.data() + 2 * at, even.data() + at, size);
    std::memcpy(out.data() + 2 * at + size, odd.data() + at, size);
  }
  return out;
}

// What is one tensor, by rows.
struct SharedTensor {
  std::string name;
  std::vector<std::string> parts;
  std::vector<std::int64_t> rows;
  std::int64_t cols = 0;    // 0: parts of one dimension
  bool transposed = false;  // a stack of matrices, each the other way round
};

std::string Layer(std::int64_t layer, const std::string& name) {
  return "model.layers." + std::to_string(layer) + "." + name + ".weight";
}

std::vector<SharedTensor> SharedTensors(std::int64_t layers) {
  SharedTensor norms{"stack.norms", {}, {}, 0};
  SharedTensor queries{"stack.q", {}, {}, 128};
  SharedTensor down{"stack.down", {}, {}, 256};
  SharedTensor outputs{"stack.o", {}, {}, 256, true};
  const auto add = [](SharedTensor& stack, const std::string& part, std::int64_t rows) {
    stack.parts.push_back(part);
    stack.rows.push_back(rows);
  };
  std::vector<SharedTensor> shared;
  for (std::int64_t i = 0; i < layers; ++i) {
    add(norms, Layer(i, "input_layernorm"), 128);
    add(queries, Layer(i, "self_attn.q_proj"), 256);
    add(down, Layer(i, "mlp.down_proj"), 128);
    add(outputs, Layer(i, "self_attn.o_proj"), 128);
    shared.push_back({"block." + std::to_string(i),
                      {Layer(i, "self_attn.k_proj"), Layer(i, "mlp.up_proj"), Layer(i, "self_attn.v_proj")},
                      {128, 256, 128},
                      128});
  }
  shared.insert(shared.end(), {norms, queries, down, outputs});
  return shared;
}

void PutShared(Weights& weights, const SharedTensor& shared, const Weights& usual, DType dtype) {
  Bytes bytes;
  std::int64_t rows = 0;
  for (std::size_t part = 0; part < shared.parts.size(); ++part) {
    Bytes of_part = BytesOf(usual, shared.parts[part]);
    if (shared.transposed) of_part = Transposed(of_part, static_cast<std::size_t>(shared.rows[part]), 256);
    bytes.insert(bytes.end(), of_part.begin(), of_part.end());
    rows += shared.rows[part];
  }
  Shape shape = shared.cols == 0 ? Shape{rows} : Shape{rows, shared.cols};
  if (shared.transposed) shape = {static_cast<std::int64_t>(shared.parts.size()), shared.cols, shared.rows.front()};
  Put(weights, shared.name, dtype, std::move(shape), bytes);
}

}  // namespace

SourceTransforms ScatteredTransforms() {
  return SourceTransforms({
      SourceTransform::Reshape(kSuffix, "o_proj.weight", {128, 256}),
      SourceTransform::Squeeze(kSuffix, "down_proj.weight", 2),
      SourceTransform::Transpose(kSuffix, "down_proj.weight"),
      SourceTransform::Deinterleave(kSuffix, "kv.weight", 1, {"k_proj.weight", "v_proj.weight"}),
      SourceTransform::Deinterleave(kSuffix, "gate_up.weight", 1, {"gate_proj.weight", "up_proj.weight"}),
      SourceTransform::Transpose(kSuffix, "gate_up.weight"),
  });
}

Weights Scattered(const Weights& usual) {
  Weights weights;
  for (std::size_t i = 0; i < usual.size(); ++i) {
    const auto& [name, dtype, shape] = usual.spec(i);
    const Bytes& bytes = usual.bytes(i);
    const std::string below = name.substr(0, name.rfind('.', name.rfind('.') - 1) + 1);
    const auto size = static_cast<std::size_t>(BitsPerElement(dtype) / 8);
    if (name.ends_with("o_proj.weight")) {
      Put(weights, name, dtype, {8, 16, 256}, bytes);
    } else if (name.ends_with("down_proj.weight")) {
      Put(weights, name, dtype, {256, 128, 1}, Transposed(bytes, 128, 256));
    } else if (name.ends_with("k_proj.weight")) {
      Put(weights, below + "kv.weight", dtype, {128, 256}, Turns(bytes, BytesOf(usual, below + "v_proj.weight"), size));
    } else if (name.ends_with("gate_proj.weight")) {
      const Bytes up = Transposed(BytesOf(usual, below + "up_proj.weight"), 256, 128);
      Put(weights, below + "gate_up.weight", dtype, {128, 512}, Turns(Transposed(bytes, 256, 128), up, size));
    } else if (!name.ends_with("v_proj.weight") && !name.ends_with("up_proj.weight")) {
      Put(weights, name, dtype, shape, bytes);
    }
  }
  return weights;
}

SourceTransforms SharedTransforms(std::int64_t layers) {
  std::vector<SourceTransform> transforms;
  for (const SharedTensor& shared : SharedTensors(layers)) {
    std::vector<SourceTransform::Part> parts;
    for (std::size_t i = 0; i < shared.parts.size(); ++i) {
      parts.push_back({shared.parts[i], shared.transposed ? 1 : shared.rows[i]});
    }
    transforms.push_back(SourceTransform::Split(kSuffix, shared.name, 0, std::move(parts)));
    if (!shared.transposed) continue;
    transforms.push_back(SourceTransform::Squeeze(kSuffix, shared.name, 0));
    transforms.push_back(SourceTransform::Transpose(kSuffix, shared.name));
  }
  return SourceTransforms(std::move(transforms));
}

Weights Shared(const Weights& usual) {
  std::int64_t layers = 0;
  for (std::size_t i = 0; i < usual.size(); ++i) layers += usual.spec(i).name.ends_with("o_proj.weight") ? 1 : 0;
  const std::vector<SharedTensor> all = SharedTensors(layers);
  Weights weights;
  for (std::size_t i = 0; i < usual.size(); ++i) {
    const auto& [name, dtype, shape] = usual.spec(i);
    const auto shared = std::ranges::find_if(
        all, [&](const SharedTensor& tensor) { return std::ranges::count(tensor.parts, name) != 0; });
    if (shared == all.end()) {
      Put(weights, name, dtype, shape, usual.bytes(i));
    } else if (shared->parts.front() == name) {
      PutShared(weights, *shared, usual, dtype);
    }
  }
  return weights;
}

ServedBytes LoadByPieces(const RigOptions& options, const Weights& weights, bool direct, std::uint64_t chunk_bytes) {
  Rig rig(options, std::byte{0xA5}, &weights);
  const std::vector<Piece> pieces = rig.Pieces(chunk_bytes);
  ReloadPipeline pipeline(rig.parts(), direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
  rig.GiveAmax(pipeline.amax());
  for (const Piece& piece : pieces) pipeline.Accept(piece, rig.ViewOf(piece));
  pipeline.Finish();
  EXPECT_TRUE(pipeline.buffer().episodes().empty());
  return rig.Staged();
}

}  // namespace layercast::testing

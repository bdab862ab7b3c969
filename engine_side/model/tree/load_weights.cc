// Module::load_weights: stores a stream's tensors where Resolve says they go.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "engine_side/model/naming/path.h"
#include "engine_side/model/tree/reciprocals.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/base/utf8.h"
#include "src/tensor/strided_copy.h"

namespace layercast {
namespace {

[[noreturn]] void Refuse(ErrorCode code, const std::string& name, const std::string& what) {
  throw Error(code, "load_weights: " + Quote(name) + " " + what);
}

// load_weights stores codes as they are, so parts of one layer must have the same scale. Only the reload pipeline
// rescales them to a common one (engine_side/reload/pipeline/part_scales.h).
[[noreturn]] void RefuseScale(const std::string& name, const std::string& other) {
  Refuse(ErrorCode::kUnsupported, name, "expected the scale of " + Quote(other) + ", another part of its layer");
}

HostMemory& Host() {
  static HostMemory memory;  // stateless
  return memory;
}

void Materialize(const Module& owner, std::uint32_t index, Parameter& parameter) {
  parameter.MaterializeOn(Host());
  for (const Box& box : owner.Padding(index)) ZeroBox(parameter.spec, box, parameter.storage.data());
}

// The view to store: the tensor's numbers, or their reciprocals, which `reciprocals` then holds.
TensorView Stored(const std::string& name, const std::vector<PlacedPiece>& pieces, TensorView tensor,
                  std::vector<float>& reciprocals) {
  if (pieces.empty() || !pieces.front().reciprocal) return tensor;
  try {
    reciprocals = Reciprocals(tensor.data, static_cast<std::size_t>(tensor.num_bytes()) / sizeof(float));
  } catch (const Error& error) {
    Refuse(error.code(), name, error.what());
  }
  tensor.data = reinterpret_cast<const std::byte*>(reciprocals.data());
  return tensor;
}

void Store(Module& owner, const std::vector<PlacedPiece>& pieces, const TensorView& tensor) {
  for (const PlacedPiece& piece : pieces) {
    Parameter& parameter = owner.parameters()[piece.parameter];
    if (parameter.on_meta()) Materialize(owner, piece.parameter, parameter);
    if (piece.source.num_elements() == 0) continue;
    CopyBox(tensor, piece.source, parameter.spec, piece.destination, parameter.storage.data(), piece.order);
  }
}

// Whether storing the tensor would change nothing.
bool IsStored(const Module& owner, const std::vector<PlacedPiece>& pieces, const TensorView& tensor) {
  for (const PlacedPiece& piece : pieces) {
    const Parameter& parameter = owner.parameters()[piece.parameter];
    const auto* extent = piece.destination.extent.data();
    const TensorSpec packed{{}, parameter.spec.dtype, Shape(extent, extent + piece.destination.rank)};
    Buffer expected(Host(), static_cast<std::size_t>(packed.num_bytes()));
    Buffer stored(Host(), expected.size());
    const TensorView view{parameter.spec.dtype, parameter.spec.shape, parameter.storage.data(), {}};
    CopyBox(tensor, piece.source, packed, Box::Whole(packed.shape), expected.data(), piece.order);
    CopyBox(view, piece.destination, packed, Box::Whole(packed.shape), stored.data());
    if (std::memcmp(expected.data(), stored.data(), expected.size()) != 0) return false;
  }
  return true;
}

// A key that tensors which must hold the same bytes have in common: the owner's name for tied tensors, the shared
// parameter for parts of a layer that share a scale; else the tensor's own name.
std::string CalledTogether(const Module& owner, const Resolution& to, const std::string& own_name) {
  if (!to.alias_of.empty()) return to.alias_of;
  if (to.pieces.empty() || !to.pieces.front().shared || to.pieces.front().source.num_elements() == 0) return own_name;
  const PlacedPiece& piece = to.pieces.front();
  return JoinPath(to.owner_path, owner.parameters()[piece.parameter].spec.name) + " " +
         std::to_string(piece.destination.begin[0]);
}

}  // namespace

std::set<std::string> Module::load_weights(WeightsIterator& weights) {
  std::set<std::string> loaded;
  // By CalledTogether: the name under which the first tensor of those came.
  std::map<std::string, std::string> tied;
  while (const std::optional<NamedTensor> next = weights.Next()) {
    TensorView tensor = next->tensor;
    const std::vector<SourceResolution> parts = ResolveSource({next->name, tensor.dtype, tensor.shape});
    if (std::ranges::all_of(parts, [](const SourceResolution& part) { return part.to.owner == nullptr; })) continue;
    if (tensor.device.kind != Device::Kind::kHost) {
      Refuse(ErrorCode::kUnsupported, next->name, "is not in host memory");
    }
    if (!loaded.insert(next->name).second) Refuse(ErrorCode::kInvalidArgument, next->name, "came twice");
    for (const auto& [view, to] : parts) {
      if (to.owner == nullptr) continue;
      const std::string& name = view.spec.name;
      tensor.shape = view.read_as;
      Module& owner = *FindModule(to.owner_path);
      const std::string& own_name = to.tree_name.empty() ? name : to.tree_name;
      const auto [first, is_first] = tied.try_emplace(CalledTogether(owner, to, own_name), name);
      std::vector<float> reciprocals;
      const TensorView stored = Stored(name, to.pieces, tensor, reciprocals);
      if (is_first) {
        Store(owner, to.pieces, stored);
      } else if (!IsStored(owner, to.pieces, stored)) {
        if (to.pieces.front().shared) RefuseScale(name, first->second);
        Refuse(ErrorCode::kCorrupt, name, "is tied to " + Quote(first->second) + " and holds other bytes");
      }
    }
  }
  return loaded;
}

}  // namespace layercast

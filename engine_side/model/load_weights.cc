// Module::load_weights: the stream's tensors go where Resolve says.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "engine_side/model/box_runs.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

[[noreturn]] void Refuse(ErrorCode code, const std::string& name, const std::string& what) {
  throw Error(code, "load_weights: " + Quote(name) + " " + what);
}

HostMemory& Host() {
  static HostMemory memory;  // stateless
  return memory;
}

void Materialize(const Module& owner, std::uint32_t index, Parameter& parameter) {
  parameter.MaterializeOn(Host());
  for (const Box& box : owner.Padding(index)) ZeroBox(parameter.spec, box, parameter.storage.data());
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

}  // namespace

std::set<std::string> Module::load_weights(WeightsIterator& weights) {
  std::set<std::string> loaded;
  std::map<std::string, std::string> tied;  // tensor that was stored, under its owner's name -> name it came under
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
      const auto [first, is_first] = tied.try_emplace(to.alias_of.empty() ? own_name : to.alias_of, name);
      if (is_first) {
        Store(owner, to.pieces, tensor);
      } else if (!IsStored(owner, to.pieces, tensor)) {
        Refuse(ErrorCode::kCorrupt, name, "is tied to " + Quote(first->second) + " and holds other bytes");
      }
    }
  }
  return loaded;
}

}  // namespace layercast

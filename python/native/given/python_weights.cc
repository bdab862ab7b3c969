#include "python/native/given/python_weights.h"

#include <chrono>
#include <span>
#include <unordered_map>
#include <utility>

#include "layercast/error.h"
#include "python/native/python_tensors.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

// A list of tensors that may be walked any number of times, in any order, from any thread. The memory is kept until the
// last walk that saw it is forgotten, and what was borrowed.
struct TensorList {
  std::vector<NamedTensor> tensors;
};

// Looks for signals every so often in a walk of the calling thread; the bytes are copied between two steps.
class ListWalk final : public WeightsIterator {
 public:
  explicit ListWalk(std::shared_ptr<const TensorList> list, std::vector<std::size_t> order)
      : list_(std::move(list)), order_(std::move(order)) {}

  std::optional<NamedTensor> Next() override {
    LookForSignals();
    const std::size_t size = order_.empty() ? list_->tensors.size() : order_.size();
    if (next_ == size) return std::nullopt;
    return list_->tensors[order_.empty() ? next_++ : order_[next_++]];
  }

 private:
  void LookForSignals() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kSignalLook) return;
    looked_ = now;
    const nb::gil_scoped_acquire gil;
    CheckSignals();
  }

  std::shared_ptr<const TensorList> list_;  // the other owners are other walks, and the version
  const std::vector<std::size_t> order_;    // empty: the list's
  std::size_t next_ = 0;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

std::vector<std::size_t> PlacesOf(const std::vector<NamedTensor>& tensors, std::span<const std::string> order) {
  if (order.empty()) return {};
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < tensors.size(); ++i) places.emplace(tensors[i].name, i);
  std::vector<std::size_t> wanted;
  for (const std::string& name : order) {
    const auto place = places.find(name);
    if (place == places.end()) throw Error(ErrorCode::kNotFound, "no tensor '" + name + "' to publish");
    wanted.push_back(place->second);
  }
  return wanted;
}

using PieceSpec = std::tuple<std::string, std::string, Shape, std::optional<std::pair<Shape, Shape>>>;

// `dtype` as torch writes it.
TensorSpec SpecFrom(std::string name, const std::string& dtype, Shape shape) {
  if (dtype == "torch.float4_e2m1fn_x2") {  // two elements in each of torch's
    if (!shape.empty()) shape.back() *= 2;
    return {.name = std::move(name), .dtype = DType::kF4, .shape = std::move(shape)};
  }
  if (const std::optional<DType> known = DTypeFromTorch(dtype)) {
    return {.name = std::move(name), .dtype = *known, .shape = std::move(shape)};
  }
  throw Error(ErrorCode::kUnsupported, "'" + name + "': Layercast has no dtype for " + dtype);
}

}  // namespace

Weights WeightsOfList(const nb::list& pieces, bool borrowed, bool stay) {
  auto list = std::make_shared<TensorList>();
  Weights weights;
  bool parts = false;
  list->tensors.reserve(nb::len(pieces));
  weights.specs.reserve(nb::len(pieces));
  for (nb::handle piece : pieces) {
    const NamedTensor& named = list->tensors.emplace_back(NamedTensorFrom(piece, stay));
    weights.specs.push_back({.name = named.name, .dtype = named.tensor.dtype, .shape = named.tensor.shape});
    parts = parts || named.part;
  }
  if (parts) {
    for (const NamedTensor& named : list->tensors) weights.parts.push_back(named.part);
  }
  weights.borrowed = borrowed;
  weights.walk = [list = std::shared_ptr<const TensorList>(std::move(list))](std::span<const std::string> order) {
    return std::make_unique<ListWalk>(list, PlacesOf(list->tensors, order));
  };
  return weights;
}

Weights WeightsOfPieces(const nb::object& pieces, const nb::list& specs, bool borrowed, bool stay) {
  Weights weights;
  bool parts = false;
  for (nb::handle spec : specs) {
    auto [name, dtype, shape, part] = nb::cast<PieceSpec>(spec);
    weights.specs.push_back(SpecFrom(std::move(name), dtype, std::move(shape)));
    parts = parts || part;
    weights.parts.push_back(part ? std::optional(TensorPart{part->first, part->second}) : std::nullopt);
  }
  if (!parts) weights.parts.clear();
  weights.borrowed = borrowed;
  weights.walk = [kept = Keep(pieces), stay](std::span<const std::string> order) {
    if (!order.empty()) throw Error(ErrorCode::kUnsupported, "the pieces of a module are walked in its own order");
    const nb::gil_scoped_acquire gil;
    return IteratorFrom(nb::borrow(static_cast<PyObject*>(const_cast<void*>(kept.get()))), stay);
  };
  return weights;
}

Weights WeightsOfIterator(nb::object iterator, bool stay) {
  return Weights::Once({}, IteratorFrom(std::move(iterator), stay));
}

}  // namespace layercast::python

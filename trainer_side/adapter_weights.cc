#include "layercast/adapters/adapter_weights.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "layercast/error.h"
#include "src/adapter/adapter_folder.h"
#include "src/adapter/adapter_tensors.h"
#include "src/adapter/adapter_text.h"
#include "src/base/utf8.h"
#include "src/tensor/adapter_tensor_name.h"

namespace layercast {
namespace {

// One of the walks that a walk of a version is made of: of an adapter, of its configuration, or of the base. Value.
struct WalkOfPart {
  std::string adapter;  // empty: the base's
  std::string text;     // not empty: it is the configuration's, and `walk` is not set
  std::function<std::unique_ptr<WeightsIterator>(std::span<const std::string>)> walk;

  std::string NameOf(const std::string& tensor) const {
    return adapter.empty() ? tensor : AdapterTensorName{adapter, tensor}.Whole();
  }

  std::unique_ptr<WeightsIterator> Begin(std::span<const std::string> order) const {
    if (text.empty()) return walk(order);
    const auto bytes = std::make_shared<const std::string>(text);  // the tensor is the second owner
    NamedTensor tensor{std::string(kAdapterConfigTensor),
                       {.dtype = DType::kU8,
                        .shape = {static_cast<std::int64_t>(bytes->size())},
                        .data = reinterpret_cast<const std::byte*>(bytes->data())},
                       bytes};
    return MakeWeightsIterator(std::vector<NamedTensor>{std::move(tensor)});
  }
};

using WalksOfParts = std::vector<WalkOfPart>;

// The part of the walk that yields a tensor, and what that calls it.
std::pair<std::size_t, std::string> PartOf(const WalksOfParts& walks, const std::string& name) {
  const auto of = AdapterTensorName::Of(name);
  for (std::size_t i = 0; i < walks.size(); ++i) {
    if (!of && walks[i].adapter.empty()) return {i, name};
    if (!of || walks[i].adapter != of->adapter) continue;
    if (walks[i].text.empty() == (of->tensor != kAdapterConfigTensor)) return {i, std::string(of->tensor)};
  }
  throw Error(ErrorCode::kNotFound, "these weights have no tensor " + Quote(name));
}

// Walks one part after the other, each in the order in which `order` names its tensors.
class WalkTogether final : public WeightsIterator {
 public:
  WalkTogether(std::shared_ptr<const WalksOfParts> walks, std::span<const std::string> order)
      : walks_(std::move(walks)), orders_(walks_->size()) {
    for (const std::string& name : order) {
      auto [part, own] = PartOf(*walks_, name);
      orders_[part].push_back(std::move(own));
    }
    ordered_ = !order.empty();
  }

  std::optional<NamedTensor> Next() override {
    while (true) {
      if (current_ == nullptr) {
        if (ordered_) {
          while (part_ < walks_->size() && orders_[part_].empty()) ++part_;
        }
        if (part_ == walks_->size()) return std::nullopt;
        current_ = (*walks_)[part_].Begin(orders_[part_]);
      }
      if (std::optional<NamedTensor> tensor = current_->Next()) {
        tensor->name = (*walks_)[part_].NameOf(tensor->name);
        return tensor;
      }
      current_.reset();
      ++part_;
    }
  }

 private:
  const std::shared_ptr<const WalksOfParts> walks_;
  std::vector<std::vector<std::string>> orders_;  // by part
  bool ordered_ = false;
  std::size_t part_ = 0;
  std::unique_ptr<WeightsIterator> current_;  // of part_
};

void Append(const Weights& from, const WalkOfPart& walk, Weights& to) {
  for (std::size_t i = 0; i < from.specs.size(); ++i) {
    to.specs.push_back({walk.NameOf(from.specs[i].name), from.specs[i].dtype, from.specs[i].shape});
    to.parts.push_back(from.parts.empty() ? std::nullopt : from.parts[i]);
  }
}

}  // namespace

AdapterWeights AdapterWeights::FromFolder(std::string name, const std::string& path) {
  const auto folder = std::make_shared<const AdapterFolder>(path);  // walks own it together
  AdapterWeights adapter{.name = std::move(name), .config = folder->config_text(), .weights = {}};
  adapter.weights.specs = folder->specs();
  adapter.weights.walk = [folder](std::span<const std::string> order) {
    std::deque<std::size_t> indices;
    for (std::size_t i = 0; order.empty() && i < folder->specs().size(); ++i) indices.push_back(i);
    for (const std::string& wanted : order) {
      const auto& specs = folder->specs();
      const auto found = std::ranges::find(specs, wanted, &TensorSpec::name);
      if (found == specs.end()) {
        throw Error(ErrorCode::kNotFound, "adapter " + folder->path().string() + " has no tensor " + Quote(wanted));
      }
      indices.push_back(static_cast<std::size_t>(found - specs.begin()));
    }
    return MakeWeightsIterator([folder, indices]() mutable -> std::optional<NamedTensor> {
      if (indices.empty()) return std::nullopt;
      const std::size_t next = indices.front();
      indices.pop_front();
      return folder->Read(next);
    });
  };
  return adapter;
}

Weights Together(std::vector<AdapterWeights> adapters, std::optional<Weights> base, const VersionPart& part) {
  auto walks = std::make_shared<WalksOfParts>();  // the walks of the result own it together
  Weights together;
  std::map<std::string, std::string> texts;
  if (base && base->walk) {
    walks->push_back({.adapter = {}, .text = {}, .walk = base->walk});
    Append(*base, walks->back(), together);
  }
  together.borrowed = base ? base->borrowed : true;
  for (AdapterWeights& adapter : adapters) {
    CheckAdapterName(adapter.name);
    const AdapterText text{AdapterConfig::FromJson(adapter.config), adapter.base};
    if (!texts.emplace(adapter.name, text.ToText()).second) {
      throw Error(ErrorCode::kInvalidArgument, "adapter " + Quote(adapter.name) + " comes twice in one version");
    }
    if (part.ranks == 1 && !adapter.weights.specs.empty()) {
      static_cast<void>(ReadAdapterTensors(adapter.weights.specs, text.config));
    }
    if (part.rank == 0) {
      walks->push_back({.adapter = adapter.name, .text = texts.at(adapter.name), .walk = {}});
      const auto bytes = static_cast<std::int64_t>(texts.at(adapter.name).size());
      const std::string name = walks->back().NameOf(std::string(kAdapterConfigTensor));
      together.specs.push_back({name, DType::kU8, {bytes}});
      together.parts.emplace_back();
    }
    if (!adapter.weights.walk) continue;
    walks->push_back({.adapter = adapter.name, .text = {}, .walk = adapter.weights.walk});
    Append(adapter.weights, walks->back(), together);
    together.borrowed = together.borrowed && adapter.weights.borrowed;
  }
  const auto unknown = [](const Weights& weights) { return weights.walk && weights.specs.empty(); };
  if ((base && unknown(*base)) ||
      std::ranges::any_of(adapters, unknown,
                          &AdapterWeights::weights)) {  // a snapshot learns what it holds as it walks
    together.specs.clear();
    together.parts.clear();
  }
  together.config = WithAdapterTexts(base ? base->config : std::string(), texts);
  together.walk = [walks](std::span<const std::string> order) { return std::make_unique<WalkTogether>(walks, order); };
  return together;
}

}  // namespace layercast

#include "tests/engine_side/engine/built_in/family_rank.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <utility>
#include <variant>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/model/naming/path.h"
#include "layercast/model/mixture_of_experts.h"
#include "layercast/model/registry.h"
#include "layercast/weights_iterator.h"

namespace layercast::testing {
namespace {

using ElementOf = std::function<float(const std::string& name, std::int64_t row, std::int64_t column)>;

// A tensor of a checkpoint. Of a stack of transposed matrices, [experts, columns, rows], elements are named by expert.
struct Held {
  TensorSpec spec;
  bool transposed = false;

  float Element(const ElementOf& element, std::int64_t index) const {
    const std::int64_t width = spec.shape.back();
    if (!transposed) return element(spec.name, index / width, index % width);
    const std::int64_t columns = spec.shape[1], line = index / width;
    return element(spec.name + std::to_string(line / columns), index % width, line % columns);
  }
};

void AddTensorsOf(const Module& module, const std::string& path, std::vector<Held>& held) {
  for (std::uint32_t i = 0; i < module.parameters().size(); ++i) {
    const TensorSpec& spec = module.parameters()[i].spec;
    for (const ExpectedTensor& tensor : module.Expected(i, path)) {
      Shape shape;
      for (std::size_t d = 0; d < spec.shape.size(); ++d) shape.push_back(tensor.destination.extent[d]);
      const bool of_experts = path.ends_with(".experts"), stacked = of_experts && shape[0] > 1;
      if (of_experts && !stacked) shape.erase(shape.begin());
      const bool transposed = stacked && shape.size() == 3;
      if (transposed) std::swap(shape[1], shape[2]);
      held.push_back({{tensor.name, spec.dtype, shape}, transposed});
    }
  }
  for (const auto& [name, child] : module.children()) AddTensorsOf(*child, JoinPath(path, name), held);
}

// Loads what a checkpoint of the whole model would hold, its vocabulary without padding.
void Load(Module& tree, const ModelConfig& config, MemoryResource& memory, const ElementOf& element) {
  const auto whole = ModelRegistry::Builtin().Build(config, {});
  std::vector<Held> held;
  AddTensorsOf(*whole, {}, held);
  std::vector<std::vector<float>> values;
  std::vector<NamedTensor> tensors;
  for (auto& [spec, transposed] : held) {
    if (spec.name.ends_with("embed_tokens.weight") || spec.name.ends_with("lm_head.weight")) {
      spec.shape[0] = config.vocab_size;
    }
    std::vector<float>& of = values.emplace_back(static_cast<std::size_t>(spec.num_elements()));
    const Held tensor{spec, transposed};
    for (std::size_t i = 0; i < of.size(); ++i) of[i] = tensor.Element(element, static_cast<std::int64_t>(i));
    tensors.push_back({.name = spec.name,
                       .tensor = {.dtype = spec.dtype,
                                  .shape = spec.shape,
                                  .data = reinterpret_cast<const std::byte*>(of.data()),
                                  .device = {}},
                       .owner = nullptr});
  }
  const std::function<void(Module&)> materialize = [&](Module& module) {
    for (Parameter& parameter : module.parameters()) parameter.MaterializeOn(memory);
    for (const auto& [name, child] : module.children()) materialize(*child);
  };
  materialize(tree);
  const auto iterator = MakeWeightsIterator(std::move(tensors));
  tree.load_weights(*iterator);
}

// Norms lie around 1, so that every weight is felt.
float RandomElement(const std::string& name, std::int64_t row, std::int64_t column) {
  const float value = 0.25F * AdapterValue(name, 0, row, column);
  return name.find("norm") != std::string::npos ? 1.0F + value : value;
}

std::vector<float> ValuesOf(const Parameter& parameter) {
  const auto* values = reinterpret_cast<const float*>(parameter.storage.data());
  return {values, values + parameter.spec.num_elements()};
}

}  // namespace

FamilyRank::FamilyRank(const ModelConfig& config, const ParallelConfig& parallel, Collective& collective)
    : tree_(ModelRegistry::Builtin().Build(config, parallel)) {
  Load(*tree_, config, zeros_, RandomElement);
  AddBuffers(*tree_, {});
  Derive(*tree_, {});
  for (const CapturedBuffer& buffer : buffers_) {
    unmerged_.emplace_back(buffer.address, buffer.address + NumBytes(buffer.dtype, buffer.shape));
  }
  AddPlaces(config, parallel);
  MakeSlots();
  decoder_ = std::make_unique<Decoder>(*tree_, parallel, buffers_, Peers{collective}, MakeRope, std::nullopt,
                                       &slots_->slots());
}

void FamilyRank::AddBuffers(Module& module, const std::string& path) {
  const auto add = [&](const TensorSpec& spec, std::byte* address) {
    buffers_.push_back({JoinPath(path, spec.name), address, spec.dtype, spec.shape, {}, {}});
  };
  for (const Parameter& parameter : module.parameters()) add(parameter.spec, parameter.storage.data());
  for (const DerivedTensor& derived : module.derived()) {
    derived_.emplace_back(host_, static_cast<std::size_t>(derived.spec.num_bytes()));
    add(derived.spec, derived_.back().data());
  }
  for (const auto& [name, child] : module.children()) AddBuffers(*child, JoinPath(path, name));
}

void FamilyRank::Derive(const Module& module, const std::string& path) {
  for (const DerivedTensor& derived : module.derived()) {
    const float* from = Values(JoinPath(path, derived.sources.at(0).name));
    float* to = Values(JoinPath(path, derived.spec.name));
    const auto* view = std::get_if<DerivedTensor::StridedView>(&derived.form);
    for (std::int64_t i = 0; i < derived.spec.num_elements(); ++i) {
      if (view == nullptr) {
        to[i] = static_cast<float>(-std::exp(static_cast<double>(from[i])));
        continue;
      }
      std::int64_t rest = i, at = view->offset;
      for (std::size_t d = derived.spec.shape.size(); d-- > 0;) {
        at += rest % derived.spec.shape[d] * view->strides[d];
        rest /= derived.spec.shape[d];
      }
      to[i] = from[at];
    }
  }
  for (const auto& [name, child] : module.children()) Derive(*child, JoinPath(path, name));
}

// Loads the indices of rows, and of columns, as if they were weights.
void FamilyRank::AddPlaces(const ModelConfig& config, const ParallelConfig& parallel) {
  for (const bool rows : {true, false}) {
    const auto tree = ModelRegistry::Builtin().Build(config, parallel);
    Load(*tree, config, zeros_, [&](const std::string&, std::int64_t row, std::int64_t column) {
      return static_cast<float>(rows ? row : column);
    });
    const std::function<void(const Module&, const std::string&)> add = [&](const Module& module,
                                                                           const std::string& path) {
      for (const Parameter& parameter : module.parameters()) {
        Places& places = places_[JoinPath(path, parameter.spec.name)];
        (rows ? places.rows : places.columns) = ValuesOf(parameter);
      }
      for (const auto& [name, child] : module.children()) add(*child, JoinPath(path, name));
    };
    add(*tree, {});
  }
}

float* FamilyRank::Values(const std::string& name) const {
  const auto found = std::ranges::find(buffers_, name, &CapturedBuffer::name);
  if (found == buffers_.end()) throw std::out_of_range(name);
  return reinterpret_cast<float*>(found->address);
}

void FamilyRank::MakeSlots() {
  const auto places = [this](const AdapterTerm& term) -> const Places& {
    return places_.at(term.layer + "." + term.parameter);
  };
  const auto width = [](const AdapterTerm& term) { return term.lookup ? term.rows : term.columns; };
  // The columns of an embedding's factor are rows of its weight, and its rows columns.
  const auto row = [=](const AdapterTerm& term, std::int64_t index) {
    return term.lookup
               ? index
               : std::lround(places(term).rows.at(static_cast<std::size_t>((term.first_row + index) * width(term))));
  };
  const auto column = [=](const AdapterTerm& term, std::int64_t index) {
    return term.lookup ? std::lround(places(term).rows.at(static_cast<std::size_t>(index * width(term))))
                       : std::lround(places(term).columns.at(static_cast<std::size_t>(index)));
  };
  slots_ = std::make_unique<FilledSlots>(
      AdapterTermsOf(*tree_), AdapterSlotSizes{.slots = kSlots, .max_rank = 7, .dtype = DType::kF32}, row, column,
      [this](const AdapterTerm& term, std::int64_t expert) { return ExpertOf(term, expert); });
}

std::int64_t FamilyRank::ExpertOf(const AdapterTerm& term, std::int64_t expert) const {
  if (term.experts == 0) return expert;
  const LocalExperts& local = dynamic_cast<const FusedMoE&>(*tree_->FindModule(term.layer)).local();
  return local.first + expert * local.step;
}

void FamilyRank::Merge(std::size_t slot) {
  const AdapterSlots& slots = slots_->slots();
  for (std::size_t i = 0; i < slots.terms().size(); ++i) {
    const AdapterTerm& term = slots.terms()[i];
    float* values = Values(term.layer + "." + term.parameter);
    for (std::int64_t expert = 0; expert < std::max<std::int64_t>(term.experts, 1); ++expert) {
      const AdapterNumbers& numbers = slots.NumbersOf(i, slot, static_cast<std::size_t>(expert));
      const std::int64_t rows_of_expert =
          tree_->FindModule(term.layer)->parameters().front().spec.shape.size() == 3
              ? std::ranges::find(buffers_, term.layer + "." + term.parameter, &CapturedBuffer::name)->shape[1]
              : 0;
      for (std::int64_t row = 0; row < term.rows; ++row) {
        for (std::int64_t column = 0; column < term.columns; ++column) {
          double sum = 0.0;
          for (std::int64_t j = 0; j < numbers.rank; ++j) {
            sum += slots_->B(i, slot, expert, row, j) * slots_->A(i, slot, expert, j, column);
          }
          const std::int64_t at = (expert * rows_of_expert + term.first_row + row) * term.columns + column;
          values[term.lookup ? column * term.rows + row : at] +=
              static_cast<float>(static_cast<double>(numbers.scale) * sum);
        }
      }
    }
  }
  Derive(*tree_, {});
}

void FamilyRank::Restore() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) std::ranges::copy(unmerged_[i], buffers_[i].address);
}

}  // namespace layercast::testing

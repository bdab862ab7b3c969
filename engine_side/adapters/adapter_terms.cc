#include "engine_side/adapters/adapter_terms.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "layercast/error.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/embedding.h"
#include "layercast/model/module.h"

namespace layercast {
namespace {

constexpr std::string_view kWeight = "weight", kGateUp = "w13_weight", kDown = "w2_weight";

bool IsLookup(const Module& layer) {
  return dynamic_cast<const VocabParallelEmbedding*>(&layer) != nullptr &&
         dynamic_cast<const ParallelLMHead*>(&layer) == nullptr;
}

// What the terms of one layer have in common, and then each of them.
class TermsOfLayer {
 public:
  TermsOfLayer(const Module& layer, std::string path, std::vector<AdapterTerm>& terms)
      : layer_(layer), path_(std::move(path)), terms_(terms) {}

  void Add() {
    for (std::uint32_t i = 0; i < layer_.parameters().size(); ++i) {
      const TensorSpec& spec = layer_.parameters()[i].spec;
      if (spec.shape.size() == 2 && spec.name == kWeight) {
        IsLookup(layer_) ? AddLookup(i) : AddLinear(i);
      } else if (spec.shape.size() == 3 && (spec.name == kGateUp || spec.name == kDown)) {
        AddExperts(i);
      }
    }
  }

  // The head of a model whose head shares the parameters of `tied`, which is this rank's.
  void AddTiedHead(const Module& tied) {
    const Shape& shape = tied.parameters().front().spec.shape;
    terms_.push_back(
        {.layer = path_, .parameter = std::string(kWeight), .shard = {}, .rows = shape[0], .columns = shape[1]});
  }

 private:
  AdapterTerm Term(std::uint32_t parameter, std::string shard, std::int64_t columns) const {
    const Parameter& of = layer_.parameters()[parameter];
    return {.layer = path_,
            .parameter = of.spec.name,
            .shard = std::move(shard),
            .columns = columns,
            .sums = of.shard_axis == ShardAxis::kCols};
  }

  void AddLookup(std::uint32_t parameter) {
    const Shape& shape = layer_.parameters()[parameter].spec.shape;
    AdapterTerm term = Term(parameter, {}, shape[0]);
    term.rows = shape[1];
    term.lookup = term.sums = true;
    terms_.push_back(std::move(term));
  }

  void AddLinear(std::uint32_t parameter) {
    const std::vector<ExpectedTensor> shards = layer_.Expected(parameter, path_);
    const Shape& shape = layer_.parameters()[parameter].spec.shape;
    for (const ExpectedTensor& shard : shards) {
      const std::string_view module = ParentPath(shard.name);
      AdapterTerm term =
          Term(parameter, std::string(shards.size() == 1 ? std::string_view() : LastName(module)), shape[1]);
      term.first_row = shard.destination.begin[0];
      term.rows = shard.destination.extent[0];
      terms_.push_back(std::move(term));
    }
  }

  // Gate lies over up, if the experts have a gate: then there are twice as many rows as down has columns.
  void AddExperts(std::uint32_t parameter) {
    const Shape& shape = layer_.parameters()[parameter].spec.shape;
    const auto add = [&](const char* shard, std::int64_t first_row, std::int64_t rows) {
      AdapterTerm term = Term(parameter, shard, shape[2]);
      term.experts = shape[0];
      term.first_row = first_row;
      term.rows = rows;
      terms_.push_back(std::move(term));
    };
    if (shape[0] == 0) return;  // all experts are other ranks'
    if (layer_.parameters()[parameter].spec.name == kDown) return add("w2", 0, shape[1]);
    const auto down = std::ranges::find(layer_.parameters(), kDown, [](const Parameter& p) { return p.spec.name; });
    const bool gated = down != layer_.parameters().end() && shape[1] == 2 * down->spec.shape[2];
    add("w1", 0, gated ? shape[1] / 2 : shape[1]);
    if (gated) add("w3", shape[1] / 2, shape[1] / 2);
  }

  const Module& layer_;
  const std::string path_;
  std::vector<AdapterTerm>& terms_;
};

// Whether this rank computes with the embedding, or the head. In a pipeline the last stage has the embedding for a tied
// head alone, and the others have no head.
bool LooksUp(const Module& root) { return !root.parallel() || root.parallel()->pp_rank == 0; }
bool HasHead(const Module& root) {
  return !root.parallel() || root.parallel()->pp_rank + 1 == root.parallel()->pp_size;
}

void AddTerms(const Module& root, const Module& module, const std::string& path, std::vector<AdapterTerm>& terms) {
  if (!module.held_by().empty()) return;
  if (IsLookup(module) && !LooksUp(root)) return;
  if (const std::string_view tied_to = module.tied_to(); !tied_to.empty()) {
    if (!HasHead(root)) return;
    const Module* tied = root.FindModule(tied_to);
    if (tied != nullptr && !tied->parameters().empty()) TermsOfLayer(module, path, terms).AddTiedHead(*tied);
    return;
  }
  TermsOfLayer(module, path, terms).Add();
  for (const auto& [name, child] : module.children()) {
    if (path.empty() && name == kDraftRoot) continue;  // no adapter is a draft model's
    AddTerms(root, *child, JoinPath(path, name), terms);
  }
}

// Whether an entry of a list of modules means the term.
bool Means(std::string_view entry, const AdapterTerm& term) {
  return entry == term.layer || entry == LastName(term.layer) || entry == term.shard;
}

std::string NameOf(const AdapterTerm& term, std::string_view factor) {
  return JoinPath(term.layer, (term.shard.empty() ? "" : term.shard + "_") + std::string(factor));
}

Shape Stacked(const AdapterTerm& term, Shape factor) {
  if (term.experts > 0) factor.insert(factor.begin(), term.experts);
  return factor;
}

}  // namespace

Shape AdapterTerm::AShape(std::int64_t max_rank) const {
  return Stacked(*this, lookup ? Shape{columns, max_rank} : Shape{max_rank, columns});
}

Shape AdapterTerm::BShape(std::int64_t max_rank) const { return Stacked(*this, {rows, max_rank}); }

std::string AdapterTerm::AName() const { return NameOf(*this, "lora_A"); }
std::string AdapterTerm::BName() const { return NameOf(*this, "lora_B"); }

std::vector<AdapterTerm> AdapterTermsOf(const Module& model, std::span<const std::string> modules) {
  std::vector<AdapterTerm> terms;
  AddTerms(model, model, {}, terms);
  if (modules.empty()) return terms;
  for (const std::string& entry : modules) {
    if (std::ranges::any_of(terms, [&](const AdapterTerm& term) { return Means(entry, term); })) continue;
    std::set<std::string_view> names;
    for (const AdapterTerm& term : terms) names.insert(LastName(term.layer));
    std::string known;
    for (const std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
    throw Error(ErrorCode::kInvalidArgument,
                "adapter modules: expected layers of the model, such as " + known + ", got '" + entry + "'");
  }
  std::erase_if(terms, [&](const AdapterTerm& term) {
    return std::ranges::none_of(modules, [&](const std::string& entry) { return Means(entry, term); });
  });
  return terms;
}

}  // namespace layercast

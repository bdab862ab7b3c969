#include "src/adapter/adapter_tensors.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "src/adapter/adapter_names.h"
#include "src/adapter/expert_stacks.h"
#include "src/adapter/tied_factors.h"
#include "src/base/utf8.h"
#include "src/checkpoint/natural_order.h"

namespace layercast {
namespace {

[[noreturn]] void FailWith(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

// Names and ends of paths, as target_modules and target_parameters have them; which of them were met is remembered.
class Targets {
 public:
  explicit Targets(const std::vector<std::string>& names) : names_(names.begin(), names.end()) {}

  // Whether the path or one of its ends, from behind a dot, is among them.
  bool Name(std::string_view path) {
    bool any = false;
    while (true) {
      if (const auto found = names_.find(path); found != names_.end()) any = met_.insert(*found).second || true;
      const std::size_t dot = path.find('.');
      if (dot == std::string_view::npos) return any;
      path.remove_prefix(dot + 1);
    }
  }

  bool Met(std::string_view name) const { return met_.contains(name); }

 private:
  std::unordered_set<std::string_view> names_;
  std::unordered_set<std::string_view> met_;
};

// Which tensors a module has, by the factor.
struct Factors {
  std::map<Factor, std::uint32_t> indices;
  bool broken = false;  // one of them has a problem by itself

  bool Have(Factor factor) const { return indices.contains(factor); }
};

struct Place {
  std::string path;
  int wrapper = 0;

  bool operator<(const Place& other) const {
    if (path != other.path) return NaturalLess(path, other.path);
    return wrapper > other.wrapper;
  }
};

class AdapterSurveyor {
 public:
  AdapterSurveyor(std::span<const TensorSpec> specs, const AdapterConfig& config)
      : specs_(specs), config_(config), modules_(config.target_modules), parameters_(config.target_parameters) {}

  AdapterTensors Survey() && {
    for (std::uint32_t i = 0; i < specs_.size(); ++i) Try([&] { Take(i); });
    for (const auto& [place, factors] : places_) {
      if (factors.broken) continue;
      Try([&, &place = place, &factors = factors] { found_.modules.push_back(ModuleOf(place, factors)); });
    }
    Try([&] { CheckVersion(); });
    Try([&] { CheckTying(); });
    if (places_.empty() && found_.problems.empty()) {
      found_.problems.push_back({ErrorCode::kInvalidArgument, "expected factors of at least one module, got none"});
    }
    if (found_.problems.empty()) Compare();
    return std::move(found_);
  }

 private:
  void Try(const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      found_.problems.push_back({error.code(), error.what()});
    }
  }

  void Take(std::uint32_t index) {
    const TensorSpec& spec = specs_[index];
    AdapterName name = ParseAdapterName(spec.name);
    if (name.factor == Factor::kBaseCopy) {
      found_.copies.push_back({std::move(name.module), index});
      return;
    }
    Factors& factors = places_[{std::move(name.module), name.wrapper}];
    const auto [first, is_new] = factors.indices.emplace(name.factor, index);
    const bool was_broken = std::exchange(factors.broken, true);
    if (!is_new) FailWith("tensor " + Quote(spec.name) + ": the same factor as " + Quote(specs_[first->second].name));
    if (spec.dtype != DType::kF32 && spec.dtype != DType::kBF16 && spec.dtype != DType::kF16) {
      throw Error(ErrorCode::kUnsupported,
                  "tensor " + Quote(spec.name) + ": expected f32, bf16 or f16, got " + Describe(spec));
    }
    if (spec.shape.size() != 2) {
      FailWith("tensor " + Quote(spec.name) + ": expected two dimensions, got " + Describe(spec));
    }
    factors.broken = was_broken;
  }

  AdapterModule ModuleOf(const Place& place, const Factors& factors) {
    const bool embedding = factors.Have(Factor::kEmbeddingA) || factors.Have(Factor::kEmbeddingB);
    const bool linear = factors.Have(Factor::kA) || factors.Have(Factor::kB);
    if (embedding && linear) FailWith(place.path + ": expected factors of one kind, got lora_A and lora_embedding_A");
    AdapterModule module{.path = place.path,
                         .parameter = {},
                         .pattern_path = place.path,
                         .wrapper = place.wrapper,
                         .embedding = embedding};
    module.a = Only(place, factors, embedding ? Factor::kEmbeddingA : Factor::kA);
    module.b = Only(place, factors, embedding ? Factor::kEmbeddingB : Factor::kB);
    ResolveParameter(module);
    module.rank = config_.RankOf(module.pattern_path);
    if (module.rank < 1) FailWith(place.path + ": expected a rank of at least 1, got " + std::to_string(module.rank));
    module.scale = config_.ScaleOf(module.pattern_path);
    CheckRanks(module);
    return module;
  }

  std::uint32_t Only(const Place& place, const Factors& factors, Factor factor) const {
    const auto found = factors.indices.find(factor);
    if (found != factors.indices.end()) return found->second;
    FailWith(place.path + ": expected two factors, got " + Quote(specs_[factors.indices.begin()->second].name) +
             " without " + std::string(Name(factor)));
  }

  // Finds out what of the module the factors are of, if they are not of its weight, or if that was named as a
  // parameter.
  void ResolveParameter(AdapterModule& module) {
    if (IsStackOfExperts(module.path)) {
      module.parameter = ParameterOfStack(module);
      module.pattern_path += "." + module.parameter;
      return;
    }
    if (module.wrapper != 0) FailWith(module.path + ": expected one wrapper, got factors behind \"base_layer\"");
    if (parameters_.Name(module.path + ".weight")) module.pattern_path += ".weight";
  }

  std::string ParameterOfStack(const AdapterModule& module) const {
    const std::vector<std::string> inner_first = ParametersOfStack(config_, module.path);
    const auto wrappers = static_cast<int>(inner_first.size());
    int there = 0;
    while (places_.contains({module.path, there})) ++there;
    if (module.wrapper < wrappers && there == wrappers) {
      return inner_first[static_cast<std::size_t>(wrappers - 1 - module.wrapper)];
    }
    FailWith(module.path + ": stacked experts: expected a wrapper for each of their parameters in target_parameters, " +
             std::to_string(wrappers) + ", got " + std::to_string(there) + " (" + Quote(specs_[module.a].name) +
             " for one)");
  }

  void CheckRanks(AdapterModule& module) const {
    const TensorSpec& a = specs_[module.a];
    const TensorSpec& b = specs_[module.b];
    const std::int64_t ranks = a.shape.at(0);
    const auto fail = [&](const std::string& expected) {
      FailWith(module.pattern_path + ": expected " + expected + ", got " + Quote(a.name) + " " + ToString(a.shape) +
               " and " + Quote(b.name) + " " + ToString(b.shape));
    };
    if (b.shape.at(1) != ranks) fail("factors of equal ranks, [r, in] and [out, r]");
    const std::string rank = std::to_string(module.rank);
    if (module.parameter.empty()) {
      if (ranks != module.rank) fail("rank " + rank + ", as the configuration says");
    } else {
      if (ranks == 0 || ranks % module.rank != 0) fail("a multiple of rank " + rank + " as of stacked experts");
      module.experts = ranks / module.rank;
    }
  }

  void CheckVersion() const {
    const auto is_stack = [](const AdapterModule& module) { return module.experts != 0; };
    const auto stack = std::ranges::find_if(found_.modules, is_stack);
    if (stack == found_.modules.end() || ReadingOf(config_.peft_version) != StackReading::kSwapped) return;
    throw Error(ErrorCode::kUnsupported, stack->pattern_path + ": " + DescribeReadings(config_));
  }

  // What of tied factors can be seen without their bytes.
  void CheckTying() {
    const auto [embedding, head] = TiedModules(found_, config_);
    if (embedding == nullptr || head == nullptr) return;
    const auto transposed = [&](std::uint32_t left, std::uint32_t right) {
      return specs_[left].shape == Shape(specs_[right].shape.rbegin(), specs_[right].shape.rend());
    };
    if (transposed(head->a, embedding->b) && transposed(head->b, embedding->a)) return;
    throw Error(ErrorCode::kUnsupported, head->path + ": ensure_weight_tying: expected the factors of " +
                                             embedding->path + ", transposed, got " + Describe(specs_[head->a]) +
                                             " and " + Describe(specs_[head->b]));
  }

  // Compares what there is with what the configuration says was trained. Nothing of that is a reason to refuse.
  void Compare() {
    std::vector<std::string> paths;
    std::vector<std::string> untargeted;
    for (const AdapterModule& module : found_.modules) {
      paths.push_back(module.pattern_path);
      const bool by_parameter = parameters_.Name(module.pattern_path);
      if (!modules_.Name(module.path) && !by_parameter) untargeted.push_back(module.path);
    }
    AddUnused(config_.target_modules, modules_);
    AddUnused(config_.target_parameters, parameters_);
    for (const std::string& pattern : config_.UnusedPatterns(paths)) {
      found_.warnings.push_back(pattern + ": matches no module");
    }
    if (untargeted.empty() || !config_.target_expression.empty()) return;
    if (config_.target_modules.empty() && config_.target_parameters.empty()) return;
    found_.warnings.push_back(std::to_string(untargeted.size()) + " of " + std::to_string(paths.size()) +
                              " modules are not among the target_modules, " + Quote(untargeted.front()) +
                              " for one: PEFT would not use their factors");
  }

  void AddUnused(const std::vector<std::string>& names, const Targets& targets) {
    for (const std::string& name : names) {
      if (!targets.Met(name)) found_.unused.push_back(name);
    }
  }

  const std::span<const TensorSpec> specs_;
  const AdapterConfig& config_;
  Targets modules_;
  Targets parameters_;
  std::map<Place, Factors> places_;
  AdapterTensors found_;
};

}  // namespace

AdapterTensors SurveyAdapter(std::span<const TensorSpec> specs, const AdapterConfig& config) {
  return AdapterSurveyor(specs, config).Survey();
}

AdapterTensors ReadAdapterTensors(std::span<const TensorSpec> specs, const AdapterConfig& config) {
  AdapterTensors tensors = SurveyAdapter(specs, config);
  if (tensors.problems.empty()) return tensors;
  const AdapterTensors::Problem& first = tensors.problems.front();
  const std::size_t more = tensors.problems.size() - 1;
  throw Error(first.code, first.message + (more == 0 ? ""
                                                     : " (and " + std::to_string(more) +
                                                           (more == 1 ? " more problem)" : " more problems)")));
}

}  // namespace layercast

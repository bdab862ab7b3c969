#include "engine_side/adapters/load/adapter_placing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

// The rows and columns of the base weight that a piece of it has, in the checkpoint and on this rank, and its experts.
struct WeightPiece {
  struct Range {
    std::int64_t source = 0, destination = 0, count = 0;
  };
  Range experts, rows, columns;  // experts: of a stack; else one, number 0
  bool interleaved = false;      // gate and up alternate among the source's rows; the destination has gate over up

  static WeightPiece Of(const PlacedPiece& piece) {
    const auto range = [&](std::size_t source_axis, std::size_t axis) {
      return Range{piece.source.begin[source_axis], piece.destination.begin[axis], piece.destination.extent[axis]};
    };
    const std::size_t rank = piece.source.rank, to = piece.destination.rank;
    const Range experts{rank > 2 ? piece.source.begin[0] : 0, to > 2 ? piece.destination.begin[0] : 0,
                        to > 2 ? piece.destination.extent[0] : 1};
    return {.experts = experts,
            .rows = range(rank - (piece.order.transposed ? 1 : 2), to - 2),
            .columns = range(rank - (piece.order.transposed ? 2 : 1), to - 1),
            .interleaved = piece.order.interleaved};
  }
};

Box BoxOf(std::initializer_list<std::pair<std::int64_t, std::int64_t>> ranges) {
  Box box;
  for (const auto& [begin, extent] : ranges) {
    box.begin[box.rank] = begin;
    box.extent[box.rank++] = extent;
  }
  return box;
}

// With the number of an expert before it, if the factor is of a stack.
Box InStack(const AdapterTerm& term, std::int64_t expert, Box box) {
  if (term.experts == 0) return box;
  Box stacked = BoxOf({{expert, 1}});
  for (std::size_t d = 0; d < box.rank; ++d) {
    stacked.begin[stacked.rank] = box.begin[d];
    stacked.extent[stacked.rank++] = box.extent[d];
  }
  return stacked;
}

[[noreturn]] void Refuse(const AdapterModule& module, const std::string& what,
                         ErrorCode code = ErrorCode::kInvalidArgument) {
  throw Error(code, "adapter module " + Quote(module.path) + ": " + what);
}

class Placer {
 public:
  Placer(const Module& base, const AdapterRoom& room, const AdapterInVersion& in)
      : base_(base), room_(room), in_(in), max_rank_(room.max_rank) {
    placing_.recording.sources.assign(in.tensors.begin(), in.tensors.end());
    std::size_t numbers = 0;
    for (std::size_t i = 0; i < room.terms.size(); ++i) {
      terms_of_[{room.terms[i].layer, room.terms[i].parameter}].push_back(i);
      first_number_.push_back(numbers);
      numbers += room.terms[i].num_experts();
    }
    placing_.numbers.resize(numbers);
  }

  AdapterPlacing Place() && {
    for (const AdapterModule& module : in_.adapter.modules) {
      if (module.rank > max_rank_) {
        Refuse(module, "expected a rank of at most " + std::to_string(max_rank_) + ", which the slots are for, got " +
                           std::to_string(module.rank));
      }
      PlaceModule(module);
    }
    for (auto& [term, filled] : filled_) AddZeros(room_.terms[term], filled);
    return std::move(placing_);
  }

 private:
  // What is there of one term. Value.
  struct Filled {
    struct OfExpert {
      const AdapterModule* module = nullptr;                      // null: nothing came for it
      std::vector<std::pair<std::int64_t, std::int64_t>> rows{};  // begin, count; of B or of a lookup's A
    };
    std::uint32_t a = 0, b = 0;  // parameters of the recording
    std::vector<OfExpert> experts;
  };

  const TensorSpec& A(const AdapterModule& module) const { return in_.own[module.a]; }
  const TensorSpec& B(const AdapterModule& module) const { return in_.own[module.b]; }

  // Asks the base where the weight goes that the module adds to.
  std::vector<SourceResolution> Resolve(const AdapterModule& module) const {
    const Shape &a = A(module).shape, &b = B(module).shape;
    TensorSpec weight{JoinPath(module.path, "weight"), DType::kF32, {b[0], a[1]}};
    if (module.embedding) weight.shape = {a[1], b[0]};
    if (module.experts == 0) return base_.ResolveSource(weight);
    weight = {JoinPath(module.path, module.parameter), DType::kF32, {module.experts, b[0], a[1]}};
    try {
      return base_.ResolveSource(weight);
    } catch (const Error&) {  // where the base holds its experts transposed, the factors are as everywhere
      TensorSpec transposed = weight;
      std::swap(transposed.shape[1], transposed.shape[2]);
      try {
        return base_.ResolveSource(transposed);
      } catch (const Error&) {
        return base_.ResolveSource(weight);
      }
    }
  }

  void PlaceModule(const AdapterModule& module) {
    std::vector<SourceResolution> resolved;
    try {
      resolved = Resolve(module);
    } catch (const Error& error) {
      Refuse(module, "its base weight: " + std::string(error.what()),
             error.code() == ErrorCode::kNotFound ? ErrorCode::kInvalidArgument : error.code());
    }
    if (module.experts > 0) {
      CheckStack(module, in_.own, in_.config, {module.experts, A(module).shape[1], B(module).shape[0]});
    }
    for (const auto& [view, to] : resolved) {
      if (!to.skip_rule.empty()) Refuse(module, "the model skips its base weight: " + to.skip_rule);
      if (!to.held_by.empty() || IsOfAnotherStage(module, to)) {
        ++placing_.elsewhere;
        continue;
      }
      if (!view.axes.empty()) {
        Refuse(module, "its base weight is " + base_.transforms().Describe(view.spec.name).front(),
               ErrorCode::kUnsupported);
      }
      const std::string layer = to.alias_of.empty() ? to.owner_path : TiedLayer(module);
      for (const PlacedPiece& piece : to.pieces) {
        if (piece.destination.num_elements() == 0) continue;  // another rank's expert
        PlacePiece(module, TermsOf(module, layer, to.owner->parameters()[piece.parameter].spec),
                   WeightPiece::Of(piece));
      }
    }
  }

  // Of a tied embedding and head, both ends of a pipeline hold the weight, and each computes one of the two.
  bool IsOfAnotherStage(const AdapterModule& module, const Resolution& to) const {
    if (!base_.parallel()) return false;
    const ParallelConfig& parallel = *base_.parallel();
    return module.embedding ? parallel.pp_rank != 0 : !to.alias_of.empty() && parallel.pp_rank + 1 != parallel.pp_size;
  }

  // The layer of a module whose base weight is another layer's: a tied head.
  std::string TiedLayer(const AdapterModule& module) const {
    for (const AdapterTerm& term : room_.terms) {
      const Module* const layer = base_.FindModule(term.layer);
      if (layer != nullptr && !layer->tied_to().empty()) return term.layer;
    }
    return module.path;
  }

  std::span<const std::size_t> TermsOf(const AdapterModule& module, const std::string& layer,
                                       const TensorSpec& weight) const {
    if (const auto found = terms_of_.find({layer, weight.name}); found != terms_of_.end()) return found->second;
    Refuse(module,
           "the adapter slots have no room for " + JoinPath(layer, weight.name) +
               ": it is none of the engine's adapter modules, or no layer that adapters can change",
           ErrorCode::kUnsupported);
  }

  void PlacePiece(const AdapterModule& module, std::span<const std::size_t> terms, const WeightPiece& piece) {
    bool placed = false;
    for (const std::size_t index : terms) {
      const AdapterTerm& term = room_.terms[index];
      if (term.lookup != module.embedding) continue;
      const WeightPiece::Range rows = term.lookup ? piece.rows : Within(piece.rows, term);
      if (rows.count == 0) continue;
      placed = true;
      for (std::int64_t e = 0; e < piece.experts.count; ++e) {
        PlaceTerm(module, index, piece.experts.destination + e, piece.experts.source + e, rows, piece);
      }
    }
    if (!placed && module.embedding && base_.config() == nullptr) {
      Refuse(module,
             "it has factors of an embedding, and a recorded loader does not say which layers look tokens up: make the "
             "receiver from the model's config.json, or train no adapter of the embedding",
             ErrorCode::kUnsupported);
    }
    if (!placed) {
      Refuse(module, module.embedding ? "it has factors of an embedding, and the layer is none"
                                      : "expected the factors of an embedding, lora_embedding_A and lora_embedding_B");
    }
  }

  // The rows of the piece that are the term's, counted from the term's first.
  static WeightPiece::Range Within(const WeightPiece::Range& rows, const AdapterTerm& term) {
    const std::int64_t begin = std::max(rows.destination, term.first_row);
    const std::int64_t end = std::min(rows.destination + rows.count, term.first_row + term.rows);
    if (end <= begin) return {};
    return {rows.source + (begin - rows.destination), begin - term.first_row, end - begin};
  }

  Filled& FilledOf(std::size_t index) {
    const auto [at, is_new] = filled_.try_emplace(index);
    Filled& filled = at->second;
    if (!is_new) return filled;
    const AdapterTerm& term = room_.terms[index];
    std::vector<RecordedParameter>& parameters = placing_.recording.parameters;
    filled.a = static_cast<std::uint32_t>(parameters.size());
    filled.b = filled.a + 1;
    filled.experts.resize(term.num_experts());
    parameters.push_back({.spec = {term.AName(), room_.dtype, term.AShape(max_rank_)}});
    parameters.push_back({.spec = {term.BName(), room_.dtype, term.BShape(max_rank_)}});
    return filled;
  }

  void PlaceTerm(const AdapterModule& module, std::size_t index, std::int64_t expert, std::int64_t source_expert,
                 const WeightPiece::Range& rows, const WeightPiece& piece) {
    const AdapterTerm& term = room_.terms[index];
    Filled& filled = FilledOf(index);
    Filled::OfExpert& of = filled.experts[static_cast<std::size_t>(expert)];
    const bool is_first = of.module == nullptr;
    if (!is_first && of.module != &module) {
      Refuse(module, Quote(of.module->path) + " adds to the same rows: expected one of the two");
    }
    of.module = &module;
    of.rows.emplace_back(rows.destination, rows.count);
    placing_.numbers[first_number_[index] + static_cast<std::size_t>(expert)] = {
        .rank = static_cast<std::int32_t>(module.rank), .scale = module.scale};

    const std::int64_t rank = module.rank;
    const std::uint32_t a = in_.of_adapter[module.a], b = in_.of_adapter[module.b];
    if (term.lookup) {
      Copy(a, filled.a, BoxOf({{0, rank}, {rows.source, rows.count}}),
           BoxOf({{rows.destination, rows.count}, {0, rank}}), true);
      if (is_first) Copy(b, filled.b, BoxOf({{0, term.rows}, {0, rank}}), BoxOf({{0, term.rows}, {0, rank}}));
      return;
    }
    const bool stacked = module.experts > 0;
    if (is_first) {  // all parts of a fused module share its A
      Copy(a, filled.a,
           BoxOf({{stacked ? source_expert * rank : 0, rank}, {piece.columns.source, piece.columns.count}}),
           InStack(term, expert, BoxOf({{0, rank}, {piece.columns.destination, piece.columns.count}})));
    }
    const Box to = InStack(term, expert, BoxOf({{rows.destination, rows.count}, {0, rank}}));
    if (!stacked) return Copy(b, filled.b, BoxOf({{rows.source, rows.count}, {0, rank}}), to);
    const std::uint32_t view = StackedB(module, piece.interleaved ? (term.first_row == 0 ? 0 : 1) : -1);
    // The rows of a piece whose gate and up alternate begin at gate's, of which up has as many.
    const std::int64_t first = piece.interleaved ? piece.rows.source / 2 + rows.destination : rows.source;
    Copy(view, filled.b, BoxOf({{first, rows.count}, {0, rank}, {source_expert, 1}}), to);
  }

  void Copy(std::uint32_t source, std::uint32_t parameter, const Box& from, const Box& to, bool transposed = false) {
    placing_.recording.copies.push_back(
        {.source = source, .parameter = parameter, .from = from, .to = to, .transposed = transposed});
  }

  // A stack's B is [out, rank * experts]: expert e has the columns e, e + experts, ... It is read as [out, rank,
  // experts]; `half`, if not -1, is the rows that are even (0) or odd (1). Returns the index of that source.
  std::uint32_t StackedB(const AdapterModule& module, int half) {
    std::vector<TensorSpec>& sources = placing_.recording.sources;
    const std::uint32_t b = in_.of_adapter[module.b];
    const auto found = stacked_.find(b);
    if (found != stacked_.end()) return found->second + static_cast<std::uint32_t>(std::max(half, 0));
    const std::string name = sources[b].name;
    const std::int64_t rows = sources[b].shape[0], experts = sources[b].shape[1] / module.rank;
    sources[b].shape = {rows, module.rank, experts};
    placing_.transforms.push_back(SourceTransform::Reshape(NameRule::Match::kSegments, name, sources[b].shape));
    if (half < 0) return stacked_[b] = b;
    placing_.transforms.push_back(
        SourceTransform::Deinterleave(NameRule::Match::kSegments, name, 0, {name + ".gate", name + ".up"}));
    const auto first = static_cast<std::uint32_t>(sources.size());
    for (const char* part : {".gate", ".up"}) {
      sources.push_back({name + part, sources[b].dtype, {rows / 2, module.rank, experts}});
    }
    return (stacked_[b] = first) + static_cast<std::uint32_t>(half);
  }

  // What no tensor fills is zero: what lies beyond the adapter's rank, the padding of a vocabulary, experts without.
  void AddZeros(const AdapterTerm& term, Filled& filled) {
    std::vector<Box>&a = placing_.recording.parameters[filled.a].zeros,
    &b = placing_.recording.parameters[filled.b].zeros;
    for (std::size_t e = 0; e < filled.experts.size(); ++e) {
      const auto add = [&](std::vector<Box>& zeros, const Box& box) {
        if (box.num_elements() > 0) zeros.push_back(InStack(term, static_cast<std::int64_t>(e), box));
      };
      Filled::OfExpert& of = filled.experts[e];
      const std::int64_t rank = of.module == nullptr ? 0 : of.module->rank, tail = max_rank_ - rank;
      std::vector<Box>& by_row = term.lookup ? a : b;
      const std::int64_t all_rows = term.lookup ? term.columns : term.rows;
      std::ranges::sort(of.rows);
      std::int64_t end = 0;
      for (const auto& [begin, count] : of.rows) {
        add(by_row, BoxOf({{end, begin - end}, {0, max_rank_}}));
        add(by_row, BoxOf({{begin, count}, {rank, tail}}));
        end = begin + count;
      }
      add(by_row, BoxOf({{end, all_rows - end}, {0, max_rank_}}));
      term.lookup ? add(b, BoxOf({{0, term.rows}, {rank, tail}})) : add(a, BoxOf({{rank, tail}, {0, term.columns}}));
    }
  }

  const Module& base_;
  const AdapterRoom& room_;
  const AdapterInVersion& in_;
  const std::int64_t max_rank_;
  std::map<std::pair<std::string_view, std::string_view>, std::vector<std::size_t>> terms_of_;  // layer, parameter
  std::vector<std::size_t> first_number_;                                                       // by term
  AdapterPlacing placing_;
  std::map<std::size_t, Filled> filled_;            // by term
  std::map<std::uint32_t, std::uint32_t> stacked_;  // by a stack's B: the source that it is read as
};

}  // namespace

std::unique_ptr<Module> AdapterPlacing::Tree() const {
  std::unique_ptr<Module> tree = TreeOf(recording);
  if (!transforms.empty()) tree->SetTransforms(SourceTransforms(transforms));
  return tree;
}

AdapterPlacing PlaceAdapter(const Module& base, const AdapterRoom& room, const AdapterInVersion& in) {
  return Placer(base, room, in).Place();
}

}  // namespace layercast

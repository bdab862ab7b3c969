#include "layercast/model/embedding.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

std::int64_t Pad(std::int64_t rows) { return RoundUp<std::int64_t>(rows, VocabRange::kPadding); }

}  // namespace

VocabRange VocabRange::Of(const ParallelConfig& parallel, std::int64_t vocab_size, std::int64_t org_vocab_size) {
  CheckParallel(parallel);
  if (org_vocab_size < 1 || vocab_size < org_vocab_size) {
    throw Error(ErrorCode::kInvalidArgument, "expected 1 <= org_vocab_size <= vocab_size, got org_vocab_size " +
                                                 std::to_string(org_vocab_size) + ", vocab_size " +
                                                 std::to_string(vocab_size));
  }
  const std::int64_t org_padded = Pad(org_vocab_size);
  const std::int64_t padded = Pad(org_padded + (vocab_size - org_vocab_size));
  VocabRange range;
  range.rows = Divide("padded vocab_size", padded, "tp_size", parallel.tp_size);
  range.org_rows = Divide("padded org_vocab_size", org_padded, "tp_size", parallel.tp_size);
  const std::int64_t added_rows = range.rows - range.org_rows;
  range.org_begin = std::min(parallel.tp_rank * range.org_rows, org_vocab_size);
  range.org_end = std::min((parallel.tp_rank + 1) * range.org_rows, org_vocab_size);
  range.added_begin = std::min(org_vocab_size + parallel.tp_rank * added_rows, vocab_size);
  range.added_end = std::min(org_vocab_size + (parallel.tp_rank + 1) * added_rows, vocab_size);
  return range;
}

VocabParallelEmbedding::VocabParallelEmbedding(const LayerContext& context, std::int64_t vocab_size,
                                               std::int64_t embedding_dim, std::optional<std::int64_t> org_vocab_size)
    : VocabParallelEmbedding("VocabParallelEmbedding", context, vocab_size, embedding_dim, org_vocab_size) {}

VocabParallelEmbedding::VocabParallelEmbedding(std::string class_name, const LayerContext& context,
                                               std::int64_t vocab_size, std::int64_t embedding_dim,
                                               std::optional<std::int64_t> org_vocab_size)
    : Module(std::move(class_name)),
      org_vocab_size_(org_vocab_size.value_or(vocab_size)),
      range_(VocabRange::Of(context.parallel, vocab_size, org_vocab_size_)) {
  AddParameter({{"weight", context.dtype, {range_.rows, embedding_dim}}, ShardAxis::kRows, false, {}});
}

std::vector<PlacedPiece> VocabParallelEmbedding::Place(std::string_view name, std::string_view /*shard_id*/,
                                                       const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  const TensorSpec& local = parameters()[index].spec;
  Shape expected = local.shape;
  expected[0] = org_vocab_size_;
  CheckFits(spec, local.dtype, expected);
  const std::int64_t rows = range_.org_end - range_.org_begin;
  return {{index, Box::Slice(expected, 0, range_.org_begin, rows), Box::Slice(local.shape, 0, 0, rows), {}}};
}

std::vector<Box> VocabParallelEmbedding::Padding(std::uint32_t parameter) const {
  const std::int64_t rows = range_.org_end - range_.org_begin;
  if (rows == range_.rows) return {};
  return {Box::Slice(parameters()[parameter].spec.shape, 0, rows, range_.rows - rows)};
}

ParallelLMHead::ParallelLMHead(const LayerContext& context, std::int64_t vocab_size, std::int64_t embedding_dim,
                               bool bias, std::optional<std::int64_t> org_vocab_size)
    : VocabParallelEmbedding("ParallelLMHead", context, vocab_size, embedding_dim, org_vocab_size) {
  if (bias) AddParameter({{"bias", context.dtype, {range().rows}}, ShardAxis::kRows, false, {}});
}

}  // namespace layercast

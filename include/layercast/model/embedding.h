// The two ends of a language model whose rows are the vocabulary, the embedding and the lm_head: split over ranks, and
// padded. Used by model families.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/linear.h"

namespace layercast {

// The rows of a vocabulary that one rank holds: [its original rows | padding | its added rows | padding]. The original
// rows of all ranks together are padded to a multiple of kPadding, and so are the added ones. Value; the ranges are
// half-open and of token ids.
struct LAYERCAST_PUBLIC VocabRange {
  std::int64_t org_begin = 0, org_end = 0;      // rows that checkpoints hold
  std::int64_t added_begin = 0, added_end = 0;  // rows for tokens that were added (adapters); never loaded
  std::int64_t org_rows = 0;                    // how many original rows this rank has, with padding
  std::int64_t rows = 0;                        // how many rows this rank has altogether

  static constexpr std::int64_t kPadding = 64;
  // `vocab_size` counts the added tokens, `org_vocab_size` does not.
  static VocabRange Of(const ParallelConfig& parallel, std::int64_t vocab_size, std::int64_t org_vocab_size);
};

// An embedding, split over ranks by rows: "weight" [rows, embedding_dim]. Rows that belong to no token of the
// checkpoint are zero.
class LAYERCAST_PUBLIC VocabParallelEmbedding : public Module {
 public:
  VocabParallelEmbedding(const LayerContext& context, std::int64_t vocab_size, std::int64_t embedding_dim,
                         std::optional<std::int64_t> org_vocab_size = std::nullopt);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::vector<Box> Padding(std::uint32_t parameter) const override;
  const VocabRange& range() const { return range_; }

 protected:
  VocabParallelEmbedding(std::string class_name, const LayerContext& context, std::int64_t vocab_size,
                         std::int64_t embedding_dim, std::optional<std::int64_t> org_vocab_size);

 private:
  std::int64_t org_vocab_size_;
  VocabRange range_;
};

// An lm_head with the rows of a VocabParallelEmbedding, and an optional "bias" [rows].
class LAYERCAST_PUBLIC ParallelLMHead final : public VocabParallelEmbedding {
 public:
  ParallelLMHead(const LayerContext& context, std::int64_t vocab_size, std::int64_t embedding_dim, bool bias,
                 std::optional<std::int64_t> org_vocab_size = std::nullopt);
};

// An lm_head that has no parameters of its own: it shares those of `path` ("model.embed_tokens").
class LAYERCAST_PUBLIC TiedLMHead final : public Module {
 public:
  explicit TiedLMHead(std::string path) : Module("ParallelLMHead"), tied_to_(std::move(path)) {}
  std::string_view tied_to() const override { return tied_to_; }

 private:
  std::string tied_to_;
};

}  // namespace layercast

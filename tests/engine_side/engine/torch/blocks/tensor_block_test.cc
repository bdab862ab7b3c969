// The blocks of the decode step in tensors, each against the CPU engine's: what they compute, what a slot keeps, and
// that a CUDA graph could hold their operations.
#include <ATen/TensorOperators.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "layercast/model/attention.h"
#include "layercast/model/gated_delta_net.h"
#include "layercast/model/latent_attention.h"
#include "layercast/model/mamba_mixer.h"
#include "layercast/model/mixture_of_experts.h"
#include "layercast/model/mlp.h"
#include "layercast/model/norm.h"
#include "tests/engine_side/engine/torch/blocks/block_pair.h"
#include "tests/support/error_of.h"

namespace layercast::testing {

void PrintTo(const BlockKind& kind, std::ostream* out) { *out << kind.name; }

namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

ModelConfig ConfigWith(const std::string& fields) {
  return ModelConfig::Parse(std::string_view(
      R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 50, "hidden_size": 24,
      "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 10, "max_position_embeddings": 64, "dtype": "float32")" +
      fields + "}"));
}

BlockKind AttentionKind(const std::string& name, const AttentionOptions& options, const std::string& fields = "") {
  return {name, [=](const LayerContext& context) {
            return std::make_unique<Attention>(context, ConfigWith(fields), 0, options);
          }};
}

BlockKind MixtureKind(const std::string& name, const MoeOptions& options, const std::string& fields = "",
                      double scale = 1.0) {
  return {name, [=](const LayerContext& context) {
            MoeConfig moe;
            moe.num_experts = 6;
            moe.num_experts_per_tok = 3;
            moe.intermediate_size = 14;
            if (!options.shared_name.empty()) moe.shared_intermediate_size = 18;
            moe.routed_scaling_factor = scale;
            if (options.routing.score == Routing::Score::kSigmoid) {
              moe.n_group = 3;
              moe.topk_group = 2;
            }
            if (!options.experts.gated) moe.latent_size = 20;
            return std::make_unique<MixtureOfExperts>(context, ConfigWith(fields), moe, options);
          }};
}

BlockKind LatentKind(const std::string& name, const std::string& fields) {
  return {name, [=](const LayerContext& context) {
            const ModelConfig config = ConfigWith(R"(, "kv_lora_rank": 14, "qk_nope_head_dim": 10,
                "qk_rope_head_dim": 6, "v_head_dim": 7)" +
                                                  fields);
            return std::make_unique<LatentAttention>(context, config, LatentAttentionSpec::Parse(config));
          }};
}

BlockKind MambaKind(const std::string& name, const MambaOptions& options) {
  return {name, [=](const LayerContext& context) {
            constexpr MambaSizes kSizes{
                .num_heads = 4, .head_dim = 6, .state_size = 5, .num_groups = 2, .conv_kernel = 3};
            return std::make_unique<MambaMixer>(context, kSizes, BlockPair::kHidden, options);
          }};
}

BlockKind DeltaNetKind(const std::string& name, DeltaNetRows rows) {
  return {name, [=](const LayerContext& context) {
            constexpr DeltaNetSizes kSizes{
                .num_key_heads = 2, .num_value_heads = 6, .key_head_dim = 5, .value_head_dim = 7, .conv_kernel = 3};
            return std::make_unique<GatedDeltaNet>(context, kSizes, BlockPair::kHidden, DeltaNetOptions{.rows = rows});
          }};
}

const std::vector<BlockKind>& Kinds() {
  static const std::vector<BlockKind> kKinds = {
      AttentionKind("Attention", {.qkv_bias = true, .qk_norm = true}),
      AttentionKind("AttentionWithSinks", {.output_bias = true, .sinks = true},
                    R"(, "use_sliding_window": true, "sliding_window": 4, "max_window_layers": 0)"),
      AttentionKind("AttentionWithGates", {.qk_norm = true, .output_gate = true}),
      AttentionKind("AttentionNormedOverHeads", {.qk_norm_over_heads = true}),
      AttentionKind("AttentionWithoutPositions", {.rotary = false, .scale = 0.7, .logit_softcap = 2.0}),
      MixtureKind("MixtureBySoftmax", {}),
      MixtureKind("MixtureNormalized", {.routing = {.normalize = true, .fp32_logits = true, .round_weights = true},
                                        .router = {.fp32_weight = true},
                                        .shared_name = "shared_expert",
                                        .shared_gate = true}),
      MixtureKind("MixtureInGroups",
                  {.routing = {.score = Routing::Score::kSigmoid, .normalize = true, .normalize_epsilon = 1e-20},
                   .router = {.correction_bias = true},
                   .shared_name = "shared_experts"},
                  "", 1.7),
      MixtureKind("MixtureClamped", {.routing = {.normalize = true, .round_weights = true},
                                     .router = {.bias = true},
                                     .router_name = "router",
                                     .experts = {.bias = true},
                                     .clamped_gate = ClampedGate{1.702, 0.3}}),
      MixtureKind("MixtureWithoutGates",
                  {.routing = {.score = Routing::Score::kSigmoid, .group_best = 1},
                   .experts = {.gated = false},
                   .shared_name = "shared_experts"},
                  R"(, "hidden_act": "relu2")"),
      {"GatedMlp",
       [](const LayerContext& context) { return std::make_unique<GatedMlp>(context, ConfigWith(""), true); }},
      {"Mlp",
       [](const LayerContext& context) {
         return std::make_unique<Mlp>(context, ConfigWith(R"(, "hidden_act": "gelu")"), true, 30);
       }},
      LatentKind("LatentAttention", R"(, "q_lora_rank": 12, "rope_interleave": false)"),
      LatentKind("LatentAttentionInPairs", R"(, "q_lora_rank": null, "rope_interleave": true)"),
      MambaKind("Mamba", {.bias = true}),
      MambaKind("MambaClamped", {.conv_bias = false, .time_step_min = 0.6, .time_step_max = 0.8}),
      DeltaNetKind("DeltaNetByKeyHead", DeltaNetRows::kByKeyHead),
      DeltaNetKind("DeltaNetByPart", DeltaNetRows::kByPart),
  };
  return kKinds;
}

float RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<float>();
}

class TensorBlocks : public ::testing::TestWithParam<BlockKind> {};

TEST_P(TensorBlocks, ComputeWhatTheDecodersDo) {
  BlockPair pair(GetParam(), DType::kF32);
  EXPECT_LT(RelativeDifference(pair.InTensors(), pair.ByDecoder()), 1e-5F);
}

// Adapters of several ranks, one of them for some of the layers alone; no sequence has the slot that holds no numbers.
void FillAdapters(BlockPair& pair) {
  const auto not_down = [](const AdapterTerm& term) { return term.layer.find("down") == std::string::npos; };
  pair.adapters().Fill(0, {.seed = 1, .rank = 6, .scale = 1.25F});
  pair.adapters().FillWithNaN(1);
  pair.adapters().Fill(2, {.seed = 2, .rank = 3, .scale = 0.75F, .has = not_down});
  pair.UseAdapters({2, -1, 0});
}

TEST_P(TensorBlocks, AddWhatAdaptersAddInTheDecoders) {
  BlockPair pair(GetParam(), DType::kF32);
  const at::Tensor base = pair.InTensors();
  FillAdapters(pair);
  const at::Tensor adapted = pair.InTensors();
  EXPECT_GT(RelativeDifference(adapted, base), 1e-2F);
  EXPECT_LT(RelativeDifference(adapted, pair.ByDecoder()), 1e-5F);
  // The second sequence, of one token after eleven of the first, is the base's, to the bit.
  EXPECT_TRUE(adapted[11].equal(base[11]));
}

TEST_P(TensorBlocks, RoundWhatAdaptersAddWhereTheDecodersDo) {
  BlockPair pair(GetParam(), DType::kBF16);
  FillAdapters(pair);
  EXPECT_LT(RelativeDifference(pair.InTensors(), pair.ByDecoder()), 0.02F);
}

TEST_P(TensorBlocks, RoundWhereTheDecodersDo) {
  BlockPair pair(GetParam(), DType::kBF16);
  // A sum in another order may round the other way: a unit in the last place, nothing worse.
  EXPECT_LT(RelativeDifference(pair.InTensors(), pair.ByDecoder()), 0.02F);
}

TEST_P(TensorBlocks, ForgetTheSequenceThatASlotHeld) {
  BlockPair pair(GetParam(), DType::kF32);
  const at::Tensor first = pair.InTensors();
  pair.FillSlots(kNoNumber);
  EXPECT_TRUE(pair.InTensors().equal(first));
}

// The operations that a step queues, with the shapes that they read.
class QueuedOperations {
 public:
  explicit QueuedOperations(std::vector<std::string>& names) {
    names_ = &names;
    at::RecordFunctionCallback callback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
      std::string line = function.name();
      for (const c10::IValue& input : function.inputs()) {
        if (input.isTensor() && input.toTensor().defined()) line += " " + c10::str(input.toTensor().sizes());
      }
      names_->push_back(line);
      return nullptr;
    });
    handle_ = at::addThreadLocalCallback(callback.needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~QueuedOperations() { at::removeCallback(handle_); }
  QueuedOperations(const QueuedOperations&) = delete;
  QueuedOperations& operator=(const QueuedOperations&) = delete;

 private:
  static thread_local std::vector<std::string>* names_;  // a callback has no state of its own
  at::CallbackHandle handle_;
};
thread_local std::vector<std::string>* QueuedOperations::names_ = nullptr;

TEST_P(TensorBlocks, QueueTheSameOperationsWhateverTheNumbers) {
  BlockPair pair(GetParam(), DType::kF32);
  const auto queued = [&](float value) {
    std::vector<std::string> names;
    const QueuedOperations recorded(names);
    pair.FillSlots(value);
    return names;
  };
  const std::vector<std::string> names = queued(0.5F);
  EXPECT_GT(names.size(), 10U);
  EXPECT_EQ(queued(-3.0F), names);
  EXPECT_EQ(queued(kNoNumber), names);
  // These wait for the device, or make shapes of what it holds.
  for (const char* forbidden : {"_local_scalar_dense", "nonzero", "masked_select", "unique", "repeat_interleave"}) {
    EXPECT_THAT(names, ::testing::Not(::testing::Contains(::testing::HasSubstr(forbidden)))) << forbidden;
  }
}

TEST_P(TensorBlocks, CouldBeCapturedBeforeTheirAdaptersAreLoaded) {
  BlockPair eager(GetParam(), DType::kBF16), captured(GetParam(), DType::kBF16);
  captured.Record();
  const at::Tensor base = eager.InTensors();
  EXPECT_TRUE(captured.InTensors().equal(base));
  for (BlockPair* pair : {&eager, &captured}) FillAdapters(*pair);
  const at::Tensor adapted = eager.InTensors();
  EXPECT_TRUE(captured.InTensors().equal(adapted));
  EXPECT_FALSE(adapted.equal(base));
  for (BlockPair* pair : {&eager, &captured}) {
    pair->adapters().Fill(1, {.seed = 5, .rank = 2});
    pair->UseAdapters({1, 2, 1});
  }
  EXPECT_TRUE(captured.InTensors().equal(eager.InTensors()));
}

TEST(TensorMoe, AnExpertsRowsAloneFeelWhatItMakes) {
  BlockPair pair(MixtureKind("Mixture", {}), DType::kF32);
  pair.KernelTensor("block.experts.w2_weight")[2].fill_(kNoNumber);
  const at::Tensor felt = pair.ByDecoder().isnan();
  EXPECT_TRUE(felt.any().item<bool>() && !felt.all().item<bool>());
  EXPECT_TRUE(pair.InTensors().isnan().equal(felt));
}

TEST(TensorBlock, RefusesAModuleThatThereIsNoneFor) {
  const BlockKind norm{"Norm", [](const LayerContext& context) { return std::make_unique<RMSNorm>(context, 8); }};
  EXPECT_EQ(ErrorOf([&] { BlockPair(norm, DType::kF32); }, ErrorCode::kUnsupported),
            "the decode step in tensors cannot compute block (RMSNorm)");
}

INSTANTIATE_TEST_SUITE_P(OfEveryKind, TensorBlocks, ::testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace layercast::testing

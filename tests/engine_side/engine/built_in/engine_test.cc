#include "engine_side/engine/built_in/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/ranks/collective.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "src/base/memory/counting_memory.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

constexpr const char* kConfig = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 50,
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "tie_word_embeddings": true})";

struct Tiny {
  explicit Tiny(const std::string& recipe, MemoryResource* memory = nullptr) {
    const auto tree = ModelRegistry::Builtin().Build(config, {});
    engine = std::make_unique<Engine>(*tree, ParallelConfig(), *MakeRecipe(recipe), memory == nullptr ? zeros : *memory,
                                      Peers{collective});
  }

  std::vector<float> Run() {
    const std::vector<std::int32_t> tokens = {1, 2, 3};
    const SequenceStep step{0, tokens, true};
    engine->Drop(0);
    return engine->Forward({&step, 1}).values;
  }

  ModelConfig config = ModelConfig::Parse(std::string_view(kConfig));
  SingleRank collective;
  HostMemory host;
  FillingMemory zeros{host, std::byte{0}};
  std::unique_ptr<Engine> engine;
};

// Hands out one block, again and again: what a rank finds when it comes back.
class KeptMemory final : public MemoryResource {
 public:
  explicit KeptMemory(std::size_t bytes = 1 << 20) : block_(bytes, std::byte{0x3d}) {}
  std::byte* Allocate(std::size_t bytes) override {
    std::byte* address = block_.data() + used_;
    used_ += (bytes + 63) / 64 * 64;
    return used_ <= block_.size() ? address : throw Error(ErrorCode::kResourceExhausted, "full");
  }
  void Deallocate(std::byte*, std::size_t) noexcept override {}
  void Rewind() { used_ = 0; }

 private:
  std::vector<std::byte> block_;
  std::size_t used_ = 0;
};

std::vector<std::string> NamesUnder(const Engine& engine, const std::string& path) {
  std::vector<std::string> names;
  for (const CapturedBuffer& buffer : engine.Buffers()) {
    if (buffer.name.starts_with(path)) names.push_back(Describe(buffer.dtype, buffer.shape) + " " + buffer.name);
  }
  return names;
}

TEST(Engine, HoldsTheKernelTensorsOfItsRecipe) {
  EXPECT_THAT(NamesUnder(*Tiny("none").engine, "model.layers.1.mlp.down"),
              ::testing::ElementsAre("[32, 48] bf16 model.layers.1.mlp.down_proj.weight"));
  EXPECT_THAT(NamesUnder(*Tiny("fp8_per_tensor").engine, "model.layers.1.self_attn.qkv"),
              ::testing::ElementsAre("[64, 32] f8_e4m3 model.layers.1.self_attn.qkv_proj.weight",
                                     "[1] f32 model.layers.1.self_attn.qkv_proj.weight_scale"));
  EXPECT_THAT(NamesUnder(*Tiny("fp8_per_channel").engine, "model.layers.0.self_attn.o"),
              ::testing::ElementsAre("[32, 32] f8_e4m3 model.layers.0.self_attn.o_proj.weight",
                                     "[32, 1] f32 model.layers.0.self_attn.o_proj.weight_scale"));
  EXPECT_THAT(NamesUnder(*Tiny("fp8_per_block").engine, "model.layers.0.mlp.gate_up"),
              ::testing::ElementsAre("[96, 32] f8_e4m3 model.layers.0.mlp.gate_up_proj.weight",
                                     "[1, 1] f32 model.layers.0.mlp.gate_up_proj.weight_scale_inv"));
  EXPECT_THAT(NamesUnder(*Tiny("nvfp4").engine, "model.layers.1.mlp.down"),
              ::testing::ElementsAre("[32, 24] u8 model.layers.1.mlp.down_proj.weight",
                                     "[32, 3] f8_e4m3 model.layers.1.mlp.down_proj.weight_scale",
                                     "[1] f32 model.layers.1.mlp.down_proj.weight_scale_2"));
  EXPECT_THAT(NamesUnder(*Tiny("int8_per_channel").engine, "model.layers.0.self_attn.o"),
              ::testing::ElementsAre("[32, 32] i8 model.layers.0.self_attn.o_proj.weight",
                                     "[32, 1] f32 model.layers.0.self_attn.o_proj.weight_scale"));
  EXPECT_THAT(NamesUnder(*Tiny("none").engine, "lm_head"), ::testing::IsEmpty());  // tied
}

TEST(Engine, NamesTheWeightThatItsRecipeCannotHold) {
  EXPECT_EQ(testing::ErrorOf([] { Tiny("mxfp8"); }, ErrorCode::kInvalidArgument),
            "'model.layers.0.mlp.down_proj.weight': mxfp8 takes columns in blocks of 32, got 48 on this rank");
}

TEST(Engine, NamesTheWeightThatThereIsNoMemoryFor) {
  KeptMemory memory(1 << 14);
  EXPECT_THAT(testing::ErrorOf([&] { Tiny("none", &memory); }, ErrorCode::kResourceExhausted),
              ::testing::HasSubstr("'model.layers.0.mlp.gate_up_proj.weight' [96, 32] bf16: full"));
}

TEST(Engine, ServesWhatIsWrittenIntoTheCapturedBuffers) {
  Tiny tiny("none");
  const CapturedBuffers captured = tiny.engine->Capture();
  EXPECT_THAT(tiny.Run(), ::testing::Each(0.0F));  // all zero: nothing was loaded yet
  for (const CapturedBuffer& buffer : captured.buffers()) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(NumElements(buffer.shape)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(0x3e00 + i * 37 % 200);
    std::memcpy(buffer.address, values.data(), values.size() * sizeof(std::uint16_t));
  }
  captured.CheckUnmoved();
  const std::vector<float> first = tiny.Run();
  EXPECT_THAT(first, ::testing::Contains(::testing::Ne(0.0F)));
  EXPECT_EQ(tiny.Run(), first);
  // The next forward pass sees one changed element.
  captured.Find("model.layers.1.mlp.down_proj.weight")->address[101] ^= std::byte{0x40};
  EXPECT_NE(tiny.Run(), first);
}

TEST(Engine, FindsWhatItsMemoryHeldBefore) {
  KeptMemory memory;
  std::vector<float> before;
  {
    Tiny tiny("none", &memory);
    tiny.engine->Buffers()[3].address[20] = std::byte{0x12};
    before = tiny.Run();
    EXPECT_THAT(before, ::testing::Each(::testing::Ne(0.0F)));
  }
  memory.Rewind();
  EXPECT_EQ(Tiny("none", &memory).Run(), before);
}

TEST(Rope, ComesFromTheModulesOwnConstants) {
  const auto tree = ModelRegistry::Builtin().Build(ModelConfig::Parse(std::string_view(kConfig)), {});
  const Module* layer = tree->FindChild("model")->FindChild("layers")->FindChild("1");
  const auto& attention = dynamic_cast<const Attention&>(*layer->FindChild("self_attn"));
  EXPECT_EQ(attention.spec().rotary.max_positions, 64);
  const Rope rope = MakeRope(attention.spec().rotary);
  EXPECT_EQ(rope.inverse_frequencies.size(), 4U);
  EXPECT_EQ(rope.inverse_frequencies[0], 1.0F);
  EXPECT_FLOAT_EQ(rope.inverse_frequencies[2], 0.01F);  // 10000 ^ -(4 / 8)
}

TEST(Rope, RefusesAThetaThatFp32DoesNotHold) {
  RotaryEmbedding embedding;
  embedding.dim = 8;
  embedding.rope.theta = 1e39;
  EXPECT_EQ(testing::ErrorOf([&] { (void)MakeRope(embedding); }, ErrorCode::kInvalidArgument),
            "config.json: 'rope_theta': expected a number that fp32 holds, got 1e+39");
}

}  // namespace
}  // namespace layercast

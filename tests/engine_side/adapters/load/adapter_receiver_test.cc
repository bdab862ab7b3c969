#include "layercast/adapters/adapter_receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "layercast/error.h"
#include "layercast/recorded_model.h"
#include "tests/engine_side/adapters/load/adapter_models.h"
#include "tests/engine_side/adapters/load/adapter_rig.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::AdapterOnDisk;
using ::testing::AllOf;
using testing::AsVector;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::kGptOss;
using testing::kLlama;
using testing::kPhi3;
using testing::kPrefix;
using testing::kQwen3Moe;
using testing::Rank;
using testing::TreeOfConfig;

// Rows [first, first + rows) and columns [column, column + columns) of a matrix of `width` columns, each row followed
// by zeros up to `to` columns, and the rows by rows of zeros up to `to_rows`.
std::vector<float> Cut(std::span<const float> matrix, std::size_t width, std::size_t first, std::size_t rows,
                       std::size_t column, std::size_t columns, std::size_t to = 0, std::size_t to_rows = 0) {
  std::vector<float> cut(std::max(rows, to_rows) * std::max(columns, to), 0.0F);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c)
      cut[r * std::max(columns, to) + c] = matrix[(first + r) * width + column + c];
  }
  return cut;
}

TEST(AdapterReceiver, CutsFactorsAsTheBaseWeightIsCut) {
  AdapterOnDisk adapter;
  adapter.AddPair("self_attn.q_proj", 2, 64, 64);
  adapter.AddPair("self_attn.v_proj", 2, 64, 32);
  adapter.AddPair("self_attn.o_proj", 2, 64, 64);
  adapter.AddPair("mlp.up_proj", 2, 64, 24);
  adapter.AddPair("mlp.down_proj", 2, 24, 64);
  const std::string path = adapter.Write();
  for (int rank = 0; rank < 4; ++rank) {
    Rank engine(kLlama, {.tp_rank = rank, .tp_size = 4});
    const LoadedAdapter loaded = engine.Load(path);
    EXPECT_EQ(loaded.modules, 5U);
    const auto t = static_cast<std::size_t>(rank);
    const auto expect = [&](const std::string& buffer, const std::vector<float>& expected) {
      EXPECT_EQ(AsVector(engine.Values(buffer)), expected) << buffer << " of rank " << rank;
    };
    // Column parallel: A whole, B by rows; two ranks have each key/value head.
    expect("self_attn.qkv_proj.q_proj_lora_A", Cut(adapter["self_attn.q_proj.lora_A.weight"], 64, 0, 2, 0, 64, 0, 4));
    expect("self_attn.qkv_proj.q_proj_lora_B", Cut(adapter["self_attn.q_proj.lora_B.weight"], 2, 16 * t, 16, 0, 2, 4));
    expect("self_attn.qkv_proj.v_proj_lora_B",
           Cut(adapter["self_attn.v_proj.lora_B.weight"], 2, 16 * (t / 2), 16, 0, 2, 4));
    expect("mlp.gate_up_proj.up_proj_lora_B", Cut(adapter["mlp.up_proj.lora_B.weight"], 2, 6 * t, 6, 0, 2, 4));
    // Row parallel: A by columns, B whole.
    expect("self_attn.o_proj.lora_A", Cut(adapter["self_attn.o_proj.lora_A.weight"], 64, 0, 2, 16 * t, 16, 0, 4));
    expect("self_attn.o_proj.lora_B", Cut(adapter["self_attn.o_proj.lora_B.weight"], 2, 0, 64, 0, 2, 4));
    expect("mlp.down_proj.lora_A", Cut(adapter["mlp.down_proj.lora_A.weight"], 24, 0, 2, 6 * t, 6, 0, 4));
    // What the adapter does not have is not touched, and has rank 0.
    EXPECT_TRUE(std::isnan(engine.Values("mlp.gate_up_proj.gate_proj_lora_B").front()));
    for (const LoadedAdapter::Term& term : loaded.terms) {
      const bool has = term.a.find("k_proj") == std::string::npos && term.a.find("gate_proj_") == std::string::npos &&
                       term.a.starts_with("model.layers");
      EXPECT_EQ(term.rank, has ? 2 : 0) << term.a;
      EXPECT_EQ(term.scale, has ? 2.0F : 0.0F) << term.a;
    }
  }
}

TEST(AdapterReceiver, AFusedModuleGivesEachShardItsRowsAndOneA) {
  AdapterOnDisk adapter;
  adapter.AddPair("self_attn.qkv_proj", 2, 64, 128);
  adapter.AddPair("mlp.gate_up_proj", 2, 64, 192);
  Rank engine(kPhi3);
  engine.Load(adapter.Write());
  const auto& qkv = adapter["self_attn.qkv_proj.lora_B.weight"];
  const std::vector<float> a = Cut(adapter["self_attn.qkv_proj.lora_A.weight"], 64, 0, 2, 0, 64, 0, 4);
  for (const auto& [shard, first, rows] : {std::tuple("q_proj", 0, 64), {"k_proj", 64, 32}, {"v_proj", 96, 32}}) {
    const std::string name = std::string("self_attn.qkv_proj.") + shard;
    EXPECT_EQ(AsVector(engine.Values(name + "_lora_A")), a) << shard;
    EXPECT_EQ(AsVector(engine.Values(name + "_lora_B")),
              Cut(qkv, 2, static_cast<std::size_t>(first), static_cast<std::size_t>(rows), 0, 2, 4))
        << shard;
  }
  EXPECT_EQ(AsVector(engine.Values("mlp.gate_up_proj.up_proj_lora_B")),
            Cut(adapter["mlp.gate_up_proj.lora_B.weight"], 2, 96, 96, 0, 2, 4));
}

TEST(AdapterReceiver, TheEmbeddingIsLookedUpByRowsAndTheHeadIsLinear) {
  AdapterOnDisk adapter;
  adapter.Add("base_model.model.model.embed_tokens.lora_embedding_A", {2, 100});
  adapter.Add("base_model.model.model.embed_tokens.lora_embedding_B", {64, 2});
  adapter.Add("base_model.model.lm_head.lora_A.weight", {2, 64});
  adapter.Add("base_model.model.lm_head.lora_B.weight", {100, 2});
  const std::string path = adapter.Write();
  for (const bool tied : {false, true}) {
    const std::string config = kLlama + (tied ? R"(, "tie_word_embeddings": true)" : "");
    ParallelConfig parallel{.tp_rank = 1, .tp_size = 2};
    HostMemory memory;
    AdapterSlots slots(AdapterTermsOf(*TreeOfConfig(config, parallel)),
                       {.slots = 1, .max_rank = 4, .dtype = DType::kF32}, memory, memory);
    AdapterReceiver receiver(TreeOfConfig(config, parallel), parallel, {.max_rank = 4, .dtype = DType::kF32},
                             {slots.Buffers(0)});
    receiver.Load(0, {.path = path});
    const auto values = [&](const std::string& name) {
      for (const CapturedBuffer& each : slots.Buffers(0)) {
        if (each.name == name) return reinterpret_cast<const float*>(each.address);
      }
      throw std::runtime_error("no buffer " + name);
    };
    // The second of two ranks has rows 64 to 127 of the padded vocabulary, of which 36 are tokens.
    const float* const a = values("model.embed_tokens.lora_A");
    const float* const b = values("lm_head.lora_B");
    for (std::size_t row = 0; row < 64; ++row) {
      for (std::size_t j = 0; j < 4; ++j) {
        const bool there = row < 36 && j < 2;
        EXPECT_EQ(a[row * 4 + j], there ? static_cast<float>(1 + j * 100 + 64 + row) : 0.0F) << row << ", " << j;
        const std::size_t before = 2 * 100 + 64 * 2 + 2 * 64;
        EXPECT_EQ(b[row * 4 + j], there ? static_cast<float>(1 + before + (64 + row) * 2 + j) : 0.0F)
            << row << ", " << j;
      }
    }
  }
}

// A stack's A is [E * rank, in], by experts; its B is [out, rank * E], in which expert e has the columns e, e + E, ...
struct Stack {
  std::size_t experts, rank, in, out;
  std::span<const float> a, b;

  float A(std::size_t e, std::size_t j, std::size_t c) const { return a[(e * rank + j) * in + c]; }
  float B(std::size_t e, std::size_t row, std::size_t j) const { return b[row * rank * experts + j * experts + e]; }
};

TEST(AdapterReceiver, StackedExpertsAreTakenApart) {
  AdapterOnDisk adapter(R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "peft_version": "0.19.1",
    "rank_pattern": {"experts.gate_up_proj": 4}, "alpha_pattern": {"experts.down_proj": 12},
    "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]})");
  adapter.Add(kPrefix + "mlp.experts.base_layer.lora_A.weight", {16, 32});
  adapter.Add(kPrefix + "mlp.experts.base_layer.lora_B.weight", {48, 16});
  adapter.Add(kPrefix + "mlp.experts.lora_A.weight", {12, 24});
  adapter.Add(kPrefix + "mlp.experts.lora_B.weight", {32, 12});
  const std::string path = adapter.Write();
  const Stack up{
      4, 4, 32, 48, adapter["mlp.experts.base_layer.lora_A.weight"], adapter["mlp.experts.base_layer.lora_B.weight"]};
  const Stack down{4, 3, 24, 32, adapter["mlp.experts.lora_A.weight"], adapter["mlp.experts.lora_B.weight"]};

  for (const bool spread : {false, true}) {
    ParallelConfig parallel{.tp_rank = 1, .tp_size = 2};
    if (spread) parallel.SpreadExperts(ExpertPlacement::kContiguous);
    Rank engine(kQwen3Moe, parallel);
    const LoadedAdapter loaded = engine.Load(path);
    EXPECT_EQ(loaded.modules, 2U);
    const std::size_t first = spread ? 2 : 0, count = spread ? 2 : 4;     // experts of this rank
    const std::size_t slice = spread ? 24 : 12, begin = spread ? 0 : 12;  // of the intermediate dimension
    const auto w1_a = engine.Values("mlp.experts.w1_lora_A"), w3_b = engine.Values("mlp.experts.w3_lora_B");
    const auto w2_a = engine.Values("mlp.experts.w2_lora_A"), w2_b = engine.Values("mlp.experts.w2_lora_B");
    for (std::size_t e = 0; e < count; ++e) {
      for (std::size_t j = 0; j < 4; ++j) {
        for (std::size_t c = 0; c < 32; ++c) ASSERT_EQ(w1_a[(e * 4 + j) * 32 + c], up.A(first + e, j, c));
        for (std::size_t i = 0; i < slice; ++i) {
          ASSERT_EQ(w3_b[(e * slice + i) * 4 + j], up.B(first + e, 24 + begin + i, j));
          ASSERT_EQ(w2_a[(e * 4 + j) * slice + i], j < 3 ? down.A(first + e, j, begin + i) : 0.0F);
        }
        for (std::size_t i = 0; i < 32; ++i)
          ASSERT_EQ(w2_b[(e * 32 + i) * 4 + j], j < 3 ? down.B(first + e, i, j) : 0.0F);
      }
    }
    for (const LoadedAdapter::Term& term : loaded.terms) {
      if (term.a.ends_with("w1_lora_A")) {
        EXPECT_EQ(std::pair(term.rank, term.scale), std::pair(4, 1.5F));
      } else if (term.a.ends_with("w2_lora_A")) {
        EXPECT_EQ(std::pair(term.rank, term.scale), std::pair(3, 4.0F));
      }
    }
  }
}

TEST(AdapterReceiver, AlternatingRowsOfGateAndUpAreParted) {
  AdapterOnDisk adapter(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "peft_version": "0.21.2",
    "target_parameters": ["mlp.experts.gate_up_proj"]})");
  adapter.Add(kPrefix + "mlp.experts.lora_A.weight", {8, 32});
  adapter.Add(kPrefix + "mlp.experts.lora_B.weight", {48, 8});
  const Stack up{4, 2, 32, 48, adapter["mlp.experts.lora_A.weight"], adapter["mlp.experts.lora_B.weight"]};
  Rank engine(kGptOss, {.tp_rank = 1, .tp_size = 2});
  engine.Load(adapter.Write());
  const auto gate = engine.Values("mlp.experts.w1_lora_B"), linear = engine.Values("mlp.experts.w3_lora_B");
  for (std::size_t e = 0; e < 4; ++e) {
    for (std::size_t i = 0; i < 12; ++i) {
      for (std::size_t j = 0; j < 2; ++j) {
        ASSERT_EQ(gate[(e * 12 + i) * 4 + j], up.B(e, 2 * (12 + i), j));
        ASSERT_EQ(linear[(e * 12 + i) * 4 + j], up.B(e, 2 * (12 + i) + 1, j));
      }
    }
  }
}

TEST(AdapterReceiver, SomeExpertsAloneLeaveTheOthersAsTheyAre) {
  AdapterOnDisk adapter;
  adapter.AddPair("mlp.experts.1.gate_proj", 2, 32, 24);
  adapter.AddPair("mlp.experts.3.down_proj", 2, 24, 32);
  Rank engine(kQwen3Moe);
  const LoadedAdapter loaded = engine.Load(adapter.Write());
  for (const LoadedAdapter::Term& term : loaded.terms) {
    const bool has =
        (term.a.ends_with("w1_lora_A") && term.expert == 1) || (term.a.ends_with("w2_lora_A") && term.expert == 3);
    EXPECT_EQ(term.rank, has ? 2 : 0) << term.a << " of expert " << term.expert;
  }
  EXPECT_EQ(AsVector(engine.Values("mlp.experts.w1_lora_B").subspan(96, 96)),
            Cut(adapter["mlp.experts.1.gate_proj.lora_B.weight"], 2, 0, 24, 0, 2, 4));
  EXPECT_EQ(AsVector(engine.Values("mlp.experts.w1_lora_B").first(96)), std::vector<float>(96));
}

TEST(AdapterReceiver, ANewAdapterLeavesNothingOfTheOneBefore) {
  AdapterOnDisk large(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 4})"), small;
  large.AddPair("self_attn.q_proj", 4, 64, 64);
  small.AddPair("self_attn.q_proj", 2, 64, 64);
  Rank fresh(kLlama), used(kLlama);
  used.Load(large.Write());
  const LoadedAdapter one = fresh.Load(small.Write()), other = used.Load(small.Write());
  for (const char* buffer : {"self_attn.qkv_proj.q_proj_lora_A", "self_attn.qkv_proj.q_proj_lora_B"}) {
    EXPECT_EQ(AsVector(fresh.Values(buffer)), AsVector(used.Values(buffer)));
  }
  EXPECT_EQ(one.digest, other.digest);
}

TEST(AdapterReceiver, RefusesWhatDoesNotFitTheModel) {
  struct Case {
    std::string module;
    std::int64_t rank, in, out;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {{"self_attn.zz_proj", 2, 64, 64, {"self_attn.zz_proj", "qkv_proj"}},
                                   {"self_attn.q_proj", 2, 60, 64, {"self_attn.q_proj", "[64, 64]", "[64, 60]"}},
                                   {"self_attn.q_proj", 2, 64, 128, {"self_attn.q_proj", "[64, 64]", "[128, 64]"}},
                                   {"input_layernorm", 2, 64, 64, {"input_layernorm"}},
                                   {"self_attn.q_proj", 5, 64, 64, {"self_attn.q_proj", "at most 4", "got 5"}}};
  for (const Case& each : cases) {
    AdapterOnDisk adapter(R"({"peft_type": "LORA", "lora_alpha": 4, "r": )" + std::to_string(each.rank) + "}");
    adapter.AddPair(each.module, each.rank, each.in, each.out);
    Rank engine(kLlama);
    const std::string why = ErrorOf([&] { engine.Load(adapter.Write()); });
    for (const std::string& word : each.says) EXPECT_THAT(why, HasSubstr(word));
    EXPECT_TRUE(std::isnan(engine.Values("self_attn.qkv_proj.q_proj_lora_A").front()));
  }
  AdapterOnDisk outside;  // layer 1 of a model with one layer, and one prefix too many
  outside.Add("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight", {2, 64});
  outside.Add("base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", {64, 2});
  EXPECT_THAT(ErrorOf([&] { Rank(kLlama).Load(outside.Write()); }), HasSubstr("layers.1.self_attn.q_proj"));
}

TEST(AdapterReceiver, RefusesWhatSlotsHaveNoRoomFor) {
  AdapterOnDisk adapter;
  adapter.AddPair("mlp.up_proj", 2, 64, 24);
  EXPECT_THAT(ErrorOf([&] { Rank(kLlama, {}, {"qkv_proj"}).Load(adapter.Write()); }, ErrorCode::kUnsupported),
              AllOf(HasSubstr("mlp.up_proj"), HasSubstr("adapter modules")));
}

// A recorded loader says where weights go, and not what the engine does with them.
TEST(AdapterReceiver, RefusesAnEmbeddingsAdapterWhereTheLoaderWasRecordedAndSaysWhatToDo) {
  Recording recording;
  recording.sources = {{"model.embed_tokens.weight", DType::kBF16, {100, 64}},
                       {"model.layers.0.self_attn.o_proj.weight", DType::kBF16, {64, 64}}};
  for (std::uint32_t i = 0; i < 2; ++i) {
    const Shape& shape = recording.sources[i].shape;
    recording.parameters.push_back({.spec = recording.sources[i]});
    recording.copies.push_back({.source = i, .parameter = i, .from = Box::Whole(shape), .to = Box::Whole(shape)});
  }
  HostMemory memory;
  const AdapterOptions options{.max_rank = 4, .dtype = DType::kF32};
  AdapterSlots slots(AdapterTermsOf(*TreeOf(recording)), {.slots = 1, .max_rank = 4, .dtype = DType::kF32}, memory,
                     memory);
  AdapterReceiver receiver(TreeOf(recording), {}, options, {slots.Buffers(0)});
  AdapterOnDisk linear, embedding;
  linear.AddPair("self_attn.o_proj", 2, 64, 64);
  EXPECT_EQ(receiver.Load(0, {.path = linear.Write()}).modules, 1U);
  embedding.AddPair("self_attn.o_proj", 2, 64, 64);
  embedding.Add("base_model.model.model.embed_tokens.lora_embedding_A", {2, 100});
  embedding.Add("base_model.model.model.embed_tokens.lora_embedding_B", {64, 2});
  EXPECT_THAT(ErrorOf([&] { receiver.Load(0, {.path = embedding.Write()}); }, ErrorCode::kUnsupported),
              AllOf(HasSubstr("model.embed_tokens"), HasSubstr("config.json")));
}

TEST(AdapterReceiver, SaysOfHowManyModulesBIsZeros) {
  AdapterOnDisk adapter;
  adapter.AddPair("self_attn.q_proj", 2, 64, 64);
  adapter.Add(kPrefix + "self_attn.o_proj.lora_A.weight", {2, 64});
  adapter.Add(kPrefix + "self_attn.o_proj.lora_B.weight", std::vector<float>(128, -0.0F), {64, 2});
  adapter.Add(kPrefix + "mlp.up_proj.lora_A.weight", std::vector<float>(128), {2, 64});  // what is zero is not a B
  adapter.Add(kPrefix + "mlp.up_proj.lora_B.weight", {24, 2});
  const std::string path = adapter.Write();
  for (int rank = 0; rank < 2; ++rank) {
    Rank engine(kLlama, {.tp_rank = rank, .tp_size = 2});
    EXPECT_EQ(engine.Load(path).zero_modules, 1U);
    EXPECT_EQ(engine.Load(path).zero_modules, 1U) << "once more, by the same plan";
  }
}

TEST(AdapterReceiver, RefusesTwoModulesForTheSameRows) {
  AdapterOnDisk adapter;
  adapter.AddPair("self_attn.qkv_proj", 2, 64, 128);
  adapter.AddPair("self_attn.q_proj", 2, 64, 64);
  EXPECT_THAT(ErrorOf([&] { Rank(kPhi3).Load(adapter.Write()); }, ErrorCode::kInvalidArgument),
              HasSubstr("adds to the same rows"));
}

}  // namespace
}  // namespace layercast

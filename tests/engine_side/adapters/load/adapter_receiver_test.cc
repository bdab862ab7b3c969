// Every element of an adapter is its own number, so that where one lands shows where it came from.
#include "layercast/adapters/adapter_receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "layercast/adapters/adapter_weights.h"
#include "layercast/error.h"
#include "layercast/publisher.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "tests/engine_side/adapters/load/adapter_models.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::kGptOss;
using testing::kLlama;
using testing::kPhi3;
using testing::kQwen3Moe;
using testing::TreeOfConfig;

const std::string kPrefix = "base_model.model.model.layers.0.";

// A PEFT folder whose tensors are numbered through, in the order in which they are added.
class AdapterOnDisk {
 public:
  explicit AdapterOnDisk(std::string config = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})")
      : config_(std::move(config)) {}

  void Add(const std::string& name, const Shape& shape, float scale = 1.0F) {
    std::vector<float> values(static_cast<std::size_t>(NumElements(shape)));
    for (float& value : values) value = scale * next_++;
    specs_.push_back({name, DType::kF32, shape});
    values_[name] = std::move(values);
  }
  void AddPair(const std::string& module, std::int64_t rank, std::int64_t in, std::int64_t out) {
    Add(kPrefix + module + ".lora_A.weight", {rank, in});
    Add(kPrefix + module + ".lora_B.weight", {out, rank});
  }
  void Remove(const std::string& name) {
    std::erase_if(specs_, [&](const TensorSpec& spec) { return spec.name == name; });
  }
  const std::vector<float>& operator[](const std::string& name) const { return values_.at(kPrefix + name); }

  std::string Write() const {
    folder_.Write("adapter_config.json", config_);
    SafetensorsWriter writer(folder_ / "adapter_model.safetensors", specs_);
    for (const TensorSpec& spec : specs_) writer.Write(spec.name, std::as_bytes(std::span(values_.at(spec.name))));
    writer.Commit();
    return folder_.path().string();
  }

 private:
  const std::string config_;
  TempFolder folder_;
  std::vector<TensorSpec> specs_;
  std::map<std::string, std::vector<float>> values_;
  float next_ = 1;
};

// Two slots of one rank, full of NaN, and the receiver that fills them.
class Rank {
 public:
  explicit Rank(const std::string& config, const ParallelConfig& parallel = {}, std::vector<std::string> modules = {})
      : slots_(AdapterTermsOf(*TreeOfConfig(config, parallel), modules),
               {.slots = 2, .max_rank = 4, .dtype = DType::kF32}, memory_, memory_),
        receiver_(TreeOfConfig(config, parallel), parallel,
                  {.slots = 2, .max_rank = 4, .modules = modules, .dtype = DType::kF32},
                  {slots_.Buffers(0), slots_.Buffers(1)}) {
    for (std::size_t slot = 0; slot < 2; ++slot) {
      for (const CapturedBuffer& buffer : slots_.Buffers(slot)) {
        std::span values(reinterpret_cast<float*>(buffer.address), static_cast<std::size_t>(NumElements(buffer.shape)));
        std::ranges::fill(values, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  LoadedAdapter Load(const std::string& path, std::size_t slot = 0) { return receiver_.Load(slot, {.path = path}); }
  LoadedAdapter Load(const AdapterSource& source, std::size_t slot = 0) { return receiver_.Load(slot, source); }

  // Elements of a slot's buffer, row-major.
  std::span<const float> Values(const std::string& buffer, std::size_t slot = 0) const {
    for (const CapturedBuffer& each : slots_.Buffers(slot)) {
      if (each.name != "model.layers.0." + buffer) continue;
      return {reinterpret_cast<const float*>(each.address), static_cast<std::size_t>(NumElements(each.shape))};
    }
    throw std::runtime_error("no buffer " + buffer);
  }

 private:
  HostMemory memory_;
  AdapterSlots slots_;
  AdapterReceiver receiver_;
};

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

std::vector<float> AsVector(std::span<const float> values) { return {values.begin(), values.end()}; }

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
    AdapterReceiver receiver(TreeOfConfig(config, parallel), parallel,
                             {.slots = 1, .max_rank = 4, .dtype = DType::kF32}, {slots.Buffers(0)});
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

TEST(AdapterReceiver, RefusesTwoModulesForTheSameRows) {
  AdapterOnDisk adapter;
  adapter.AddPair("self_attn.qkv_proj", 2, 64, 128);
  adapter.AddPair("self_attn.q_proj", 2, 64, 64);
  EXPECT_THAT(ErrorOf([&] { Rank(kPhi3).Load(adapter.Write()); }, ErrorCode::kInvalidArgument),
              HasSubstr("adds to the same rows"));
}

class PublishedAdapters : public ::testing::Test {
 protected:
  PublishedAdapters() {
    policy_.AddPair("self_attn.q_proj", 2, 64, 64);
    policy_.AddPair("mlp.down_proj", 2, 24, 64);
    critic_.AddPair("self_attn.v_proj", 2, 64, 32);
  }
  AdapterWeights Policy() { return AdapterWeights::FromFolder("policy", policy_.Write()); }
  AdapterWeights Critic() { return AdapterWeights::FromFolder("critic", critic_.Write()); }
  AdapterSource From(std::string name = "") {
    return {.path = {}, .publishers = {publisher_.endpoint()}, .name = std::move(name)};
  }

  AdapterOnDisk policy_, critic_;
  Publisher publisher_{PublisherOptions{}};
};

TEST_F(PublishedAdapters, ComeAsFromTheirFolder) {
  for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
    for (const bool layer_order : {false, true}) {
      if (layer_order && mode == PublishMode::kSnapshot) continue;
      SCOPED_TRACE(layer_order);
      static std::uint64_t step = 0;
      const auto published = publisher_.Publish(
          {.lineage = "run", .step = ++step, .mode = mode, .layer_order = layer_order}, Together({Policy(), Critic()}));
      for (int rank = 0; rank < 2; ++rank) {
        const ParallelConfig parallel{.tp_rank = rank, .tp_size = mode == PublishMode::kSnapshot ? 2 : 1};
        if (rank >= parallel.tp_size) break;
        Rank from_disk(kLlama, parallel), engine(kLlama, parallel);
        const LoadedAdapter cold = from_disk.Load(policy_.Write());
        const LoadedAdapter loaded = engine.Load(From("policy"));
        EXPECT_EQ(loaded.version, published.version());
        EXPECT_EQ(loaded.digest, cold.digest);
        EXPECT_EQ(loaded.report.bytes, loaded.report.bytes_total);
        for (const char* buffer : {"self_attn.qkv_proj.q_proj_lora_B", "mlp.down_proj.lora_A"}) {
          EXPECT_EQ(AsVector(engine.Values(buffer)), AsVector(from_disk.Values(buffer)));
        }
      }
    }
  }
}

TEST_F(PublishedAdapters, AreFoundByName) {
  publisher_.Publish({.lineage = "run", .step = 1}, Together({Policy()}));
  EXPECT_EQ(Rank(kLlama).Load(From()).name, "policy");
  publisher_.Publish({.lineage = "run", .step = 2}, Together({Policy(), Critic()}));
  EXPECT_THAT(ErrorOf([&] { Rank(kLlama).Load(From()); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("'critic'"), HasSubstr("'policy'")));
  EXPECT_THAT(ErrorOf([&] { Rank(kLlama).Load(From("other")); }, ErrorCode::kNotFound),
              HasSubstr("'critic', 'policy'"));
}

TEST_F(PublishedAdapters, SayWhichBaseTheyAreOf) {
  AdapterWeights adapter = Policy();
  adapter.base = Version{"base", 7, {1, 2}};
  publisher_.Publish({.lineage = "run", .step = 1}, Together({std::move(adapter)}));
  EXPECT_EQ(Rank(kLlama).Load(From()).base, (Version{"base", 7, {1, 2}}));
}

TEST_F(PublishedAdapters, WhatIsNoAdapterIsRefusedBeforeItIsPublished) {
  AdapterWeights twice = Policy();
  EXPECT_THAT(ErrorOf([&] { Together({Policy(), std::move(twice)}); }), HasSubstr("'policy' comes twice"));
  AdapterWeights slashed = Policy();
  slashed.name = "a/b";
  EXPECT_THAT(ErrorOf([&] { Together({std::move(slashed)}); }), HasSubstr("without slashes"));
  policy_.Remove(kPrefix + "mlp.down_proj.lora_B.weight");
  EXPECT_THAT(ErrorOf([&] { Together({Policy()}); }), HasSubstr("mlp.down_proj"));
}

}  // namespace
}  // namespace layercast

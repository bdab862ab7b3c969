// An adapter of very many small tensors beside one tensor of as many bytes: what a version of it takes from publishing
// to a verified slot, over shared memory, on one rank. The adapter is of all experts of a mixture of 48 layers of 128
// experts, expert by expert: 36 864 tensors. Both are taken in turns; medians, and their ratio.
//
//   adapter_load_bench [RANK [ROUNDS]]     RANK 4 by default: 415 MB in bf16; 16: 1.66 GB
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/samples.h"
#include "engine_side/adapters/adapter_slots.h"
#include "layercast/adapters/adapter_receiver.h"
#include "layercast/adapters/adapter_weights.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/config.h"
#include "layercast/model/module.h"
#include "layercast/model/registry.h"
#include "layercast/publisher.h"
#include "layercast/receiver.h"
#include "layercast/recorded_model.h"

namespace layercast::bench {
namespace {

constexpr std::int64_t kLayers = 48, kExperts = 128, kHidden = 2048, kIntermediate = 768;
constexpr char kModel[] = R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
  "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 1024,
  "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "dtype": "bfloat16"})";

using Clock = std::chrono::steady_clock;

double SecondsOf(const auto& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::unique_ptr<Module> Model() { return ModelRegistry::Builtin().Build(ModelConfig::Parse(kModel), {}); }

std::vector<TensorSpec> AdapterSpecs(std::int64_t rank) {
  std::vector<TensorSpec> specs;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
        const bool down = std::string(projection) == "down_proj";
        const std::int64_t in = down ? kIntermediate : kHidden, out = down ? kHidden : kIntermediate;
        const std::string module = "base_model.model.model.layers." + std::to_string(layer) + ".mlp.experts." +
                                   std::to_string(expert) + "." + projection;
        specs.push_back({module + ".lora_A.weight", DType::kBF16, {rank, in}});
        specs.push_back({module + ".lora_B.weight", DType::kBF16, {out, rank}});
      }
    }
  }
  return specs;
}

// Weights that lie one after the other in memory.
Weights Lying(std::vector<TensorSpec> specs, const std::shared_ptr<std::vector<std::byte>>& memory) {
  Weights weights;
  weights.specs = std::move(specs);
  weights.walk = [specs = weights.specs, memory](std::span<const std::string>) {
    return MakeWeightsIterator([specs, memory, i = std::size_t{0},
                                at = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
      if (i == specs.size()) return std::nullopt;
      const TensorSpec& spec = specs[i++];
      NamedTensor tensor{spec.name, {.dtype = spec.dtype, .shape = spec.shape, .data = memory->data() + at}, memory};
      at += static_cast<std::size_t>(spec.num_bytes());
      return tensor;
    });
  };
  return weights;
}

struct Times {
  std::vector<double> publish, load;
};

void Report(const char* what, const Times& times, const Times& beside) {
  const double publish = Median(times.publish), load = Median(times.load);
  std::printf("%-10s publish %7.1f ms, load %7.1f ms, together %7.1f ms: %.2f of the blob's\n", what, 1e3 * publish,
              1e3 * load, 1e3 * (publish + load), (publish + load) / (Median(beside.publish) + Median(beside.load)));
}

int Main(std::int64_t rank, int rounds) {
  const std::vector<TensorSpec> specs = AdapterSpecs(rank);
  const std::uint64_t bytes = TotalBytes(specs);
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes, std::byte{0x11});
  std::printf("%zu tensors, %.1f MB\n", specs.size(), 1e-6 * static_cast<double>(bytes));

  HostMemory host;
  const std::vector<std::string> modules = {"experts"};
  const AdapterOptions options{.max_rank = rank, .modules = modules};
  AdapterSlots slots(AdapterTermsOf(*Model(), modules), {.slots = 1, .max_rank = rank}, host, host);
  AdapterReceiver adapters(Model(), {}, options, {slots.Buffers(0)}, {.engine = "many", .channel = "shm"});

  const TensorSpec blob{"blob.weight", DType::kU8, {static_cast<std::int64_t>(bytes)}};
  Buffer into(host, bytes);
  std::vector<CapturedBuffer> captured = {
      {.name = blob.name, .address = into.data(), .dtype = blob.dtype, .shape = blob.shape}};
  const Box all = Box::Whole(blob.shape);
  Receiver one(TreeOf({.sources = {blob}, .parameters = {{.spec = blob}}, .copies = {{.from = all, .to = all}}}), {},
               {}, CapturedBuffers::Adopt(captured),
               {.engine = "one", .channel = "shm", .commit = CommitPolicy::kInPlace});

  Publisher publisher({.channels = {"shm"}});
  Times of_adapter, of_blob;
  const std::string config = R"({"peft_type": "LORA", "lora_alpha": 8, "r": )" + std::to_string(rank) + "}";
  for (int round = 0; round <= rounds; ++round) {
    const auto step = static_cast<std::uint64_t>(round);
    std::vector<AdapterWeights> weights(1);
    weights[0] = {.name = "policy", .config = config, .weights = Lying(specs, memory)};
    Weights together;
    const double adapter_published =
        SecondsOf([&] { publisher.Publish({.lineage = "adapter", .step = step}, Together(std::move(weights))); });
    const double adapter_loaded =
        SecondsOf([&] { adapters.Load(0, {.publishers = {publisher.endpoint()}, .lineage = "adapter"}); });
    const double blob_published =
        SecondsOf([&] { publisher.Publish({.lineage = "blob", .step = step}, Lying({blob}, memory)); });
    const double blob_loaded = SecondsOf([&] { one.ReloadWeights(FromPublisher(publisher.endpoint(), "blob")); });
    if (round == 0) continue;  // makes memory and links
    of_adapter.publish.push_back(adapter_published);
    of_adapter.load.push_back(adapter_loaded);
    of_blob.publish.push_back(blob_published);
    of_blob.load.push_back(blob_loaded);
  }
  Report("adapter", of_adapter, of_blob);
  Report("blob", of_blob, of_blob);
  return 0;
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  return layercast::bench::Main(argc > 1 ? std::atoi(argv[1]) : 4, argc > 2 ? std::atoi(argv[2]) : 5);
}

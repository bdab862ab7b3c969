// A whole sync beside what its bytes cost: a version that was published is taken over `shm` by one rank in the same
// process, every digest checked, and committed. Its limits, in the same turn and with as many threads:
//   pass  the recipe's kernels over the source, tensor by tensor, into memory that is there (`none`: a copy)
//   copy  what the pass has written, copied once more, as a staged commit does
// `ratio` is the median of sync / (pass + copy), and for `in_place` of sync / pass: neither limit checks a digest.
// `publish` is the snapshot's copy with its digests, before the sync.
//
//   sync_bench [TURNS [LAYERS]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/one_rank.h"
#include "src/base/check.h"
#include "src/tensor/kernels/stream_copy.h"
#include "src/transport/all/transports.h"

namespace layercast::bench {
namespace {

constexpr std::size_t kThreads = 2;  // as ReceiverOptions has by default

// The passes over memory that no sync can spare.
class Limits {
 public:
  Limits(const std::vector<NamedTensor>& weights, const std::string& recipe) : recipe_(MakeRecipe(recipe)) {
    for (const NamedTensor& weight : weights) {
      const TensorView& tensor = weight.tensor;
      One one{.source = {tensor.dtype, tensor.data, 1, NumElements(tensor.shape), tensor.num_bytes()}};
      if (recipe != "none" && weight.name.ends_with("_proj.weight")) {
        const std::int64_t rows = tensor.shape[0];
        one.source = {tensor.dtype, tensor.data, rows, tensor.shape[1], tensor.num_bytes() / rows};
        one.amax.tensor = Scan(one.source, pool_).amax;
        for (const TensorSpec& spec : recipe_->KernelTensors(tensor.dtype, rows, tensor.shape[1])) {
          one.outputs.push_back(KernelTensorView::Of(spec.shape, Take(static_cast<std::size_t>(spec.num_bytes()))));
        }
      } else {
        Take(static_cast<std::size_t>(tensor.num_bytes()));
        one.copy = &staged_.back();
      }
      all_.push_back(std::move(one));
    }
  }

  double Pass() {
    const auto begin = Deadline::Clock::now();
    for (const One& one : all_) {
      if (one.copy == nullptr) {
        recipe_->Quantize(one.source, 0, one.amax, one.outputs, pool_);
      } else {
        StreamCopy(one.source.data, one.copy->size(), one.copy->data(), pool_);
      }
    }
    return MillisecondsSince(begin);
  }

  double Copy() {
    const auto begin = Deadline::Clock::now();
    for (std::size_t i = 0; i < staged_.size(); ++i)
      StreamCopy(staged_[i].data(), staged_[i].size(), live_[i].data(), pool_);
    return MillisecondsSince(begin);
  }

 private:
  struct One {
    MatrixView source;
    AmaxInput amax{};
    std::vector<KernelTensorView> outputs{};
    const Buffer* copy = nullptr;  // for what is not quantized
  };

  std::byte* Take(std::size_t bytes) {
    for (std::deque<Buffer>* const memory : {&live_, &staged_}) {
      memory->emplace_back(host_, bytes);
      std::fill(memory->back().span().begin(), memory->back().span().end(), std::byte{0});
    }
    return staged_.back().data();
  }

  HostMemory host_;
  WorkerPool pool_{kThreads};
  std::unique_ptr<const Recipe> recipe_;
  std::deque<Buffer> staged_, live_;
  std::vector<One> all_;
};

struct Figures {
  std::vector<double> publish, staged, sync, ratio;
};

void Measure(Trainer& trainer, const Size& model, const std::string& recipe, int turns) {
  Limits limits(trainer.weights(), recipe);
  constexpr CommitPolicy kPolicies[] = {CommitPolicy::kStaged, CommitPolicy::kInPlace, CommitPolicy::kUndo};
  std::vector<double> passes, copies;
  Figures figures[std::size(kPolicies)];
  for (std::size_t policy = 0; policy < std::size(kPolicies); ++policy) {
    Engine engine(model, recipe, kPolicies[policy], trainer.endpoint(), AllTransports());
    for (int turn = -1; turn < turns; ++turn) {
      const auto begin = Deadline::Clock::now();
      trainer.Publish();
      const double publish = MillisecondsSince(begin);
      const Times sync = engine.Reload();
      const double pass = limits.Pass();
      const double copy = limits.Copy();
      if (turn < 0) continue;  // memory is touched for the first time
      passes.push_back(pass);
      copies.push_back(copy);
      Figures& of = figures[policy];
      of.publish.push_back(publish);
      of.staged.push_back(sync.staged);
      of.sync.push_back(sync.committed);
      of.ratio.push_back(sync.committed / (kPolicies[policy] == CommitPolicy::kInPlace ? pass : pass + copy));
    }
    LAYERCAST_CHECK(engine.ServesWhatItTook());
  }
  std::printf("%s: pass %.0f ms, copy %.0f ms\n", recipe.c_str(), Median(passes), Median(copies));
  for (std::size_t policy = 0; policy < std::size(kPolicies); ++policy) {
    const Figures& of = figures[policy];
    std::printf("  %-9s publish %4.0f ms  staged %4.0f ms  sync %4.0f ms  ratio %.2f\n",
                std::string(CommitPolicyName(kPolicies[policy])).c_str(), Median(of.publish), Median(of.staged),
                Median(of.sync), Median(of.ratio));
  }
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  using namespace layercast;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int turns = argc > 1 ? std::atoi(argv[1]) : 7;
  const int layers = argc > 2 ? std::atoi(argv[2]) : 28;
  if (turns < 1 || layers < 1) {
    std::fprintf(stderr, "sync_bench [TURNS [LAYERS]]: expected positive numbers\n");
    return 2;
  }
  bench::Size model = bench::kQwen3Shapes;
  model.layers = layers;
  bench::Trainer trainer(model, "shm", /*copies=*/true);
  std::printf("%d layers, %.0f MB of bf16, %d turns\n", layers, trainer.bytes() * 1e-6, turns);
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel"}) {
    bench::Measure(trainer, model, recipe, turns);
  }
}

#include "engine_side/reload/sources/kernel_format.h"

#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "engine_side/plan/plan_problems.h"
#include "engine_side/reload/work/check_scales.h"
#include "layercast/error.h"
#include "src/checkpoint/rank_files.h"
#include "src/tensor/manifest/manifest_entry.h"

namespace layercast {
namespace {

std::filesystem::path PartPath(const std::string& directory, int rank, int part) {
  return std::filesystem::path(directory) / RankFileName(rank, part);
}

// A file that cannot be examined counts as not there. Whoever opens it learns why.
bool Exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

class OneAfterTheOther final : public WeightsIterator {
 public:
  explicit OneAfterTheOther(std::vector<Checkpoint> parts) : parts_(std::move(parts)) {}

  std::optional<NamedTensor> Next() override {
    for (;;) {
      if (walk_ != nullptr) {
        if (std::optional<NamedTensor> tensor = walk_->Next()) return tensor;
      }
      if (next_ == parts_.size()) return std::nullopt;
      walk_ = parts_[next_++].Weights();
    }
  }

 private:
  const std::vector<Checkpoint> parts_;
  std::size_t next_ = 0;  // index of the next part
  std::unique_ptr<WeightsIterator> walk_;
};

// Ticks off kernel tensors as they come, and remembers everything that is wrong.
class Awaited {
 public:
  explicit Awaited(const KernelLayout& layout) {
    for (const KernelTensor& tensor : layout.tensors()) awaited_.emplace(tensor.spec.name, &tensor);
  }

  // The kernel tensor with this spec, which is then no longer awaited. Null if something is wrong with it.
  const KernelTensor* Take(const TensorSpec& spec) {
    const auto found = awaited_.find(spec.name);
    if (found == awaited_.end()) {
      unexpected_.push_back("'" + spec.name + "'");
      return nullptr;
    }
    const KernelTensor* tensor = found->second;
    awaited_.erase(found);
    if (spec.dtype == tensor->spec.dtype && spec.shape == tensor->spec.shape) return tensor;
    misfits_.push_back("'" + spec.name + "': expected " + Describe(tensor->spec) + ", got " + Describe(spec));
    return nullptr;
  }
  bool AnyProblem() const { return !misfits_.empty() || !unexpected_.empty(); }

  void CheckAllCame() const {
    std::vector<std::string> missing;
    for (const auto& [name, tensor] : awaited_) missing.push_back("'" + std::string(name) + "'");
    const std::string problems = ProblemLine("that do not fit", misfits_, "; ") + ProblemLine("missing", missing) +
                                 ProblemLine("unexpected or repeated", unexpected_);
    if (problems.empty()) return;
    throw Error(ErrorCode::kInvalidArgument, "these weights are not this engine's kernel tensors:" + problems);
  }

 private:
  std::map<std::string_view, const KernelTensor*> awaited_;
  std::vector<std::string> misfits_;
  std::vector<std::string> unexpected_;
};

// Checks scales as those of a checkpoint are checked.
void CheckSign(const KernelTensor& tensor, std::span<const std::byte> bytes) {
  if (tensor.sign == Sign::kAny) return;
  const std::string& name = tensor.spec.name;
  if (tensor.powers_of_two) return CheckPowersOfTwo(bytes, ParentPath(name), name);
  if (tensor.spec.dtype != DType::kU8) {
    return CheckScales(tensor.spec.dtype, bytes.data(), static_cast<std::size_t>(tensor.spec.num_elements()),
                       tensor.sign, ParentPath(name), name);
  }
  const std::ptrdiff_t nan = FindNanExponent(bytes);
  if (nan < 0) return;
  throw Error(ErrorCode::kCorrupt, "'" + name + "': expected powers of two, got NaN at element " + std::to_string(nan));
}

}  // namespace

bool IsKernelFormat(const CheckpointSource& source) {
  const bool found = source.load_format == "auto" && Exists(PartPath(source.path, 0, 0));
  if (!found && source.load_format != "sharded_state") return false;
  if (source.secondary.empty()) return true;
  throw Error(ErrorCode::kInvalidArgument, "sharded_state in " + source.path +
                                               ": expected no secondary weights, got '" +
                                               source.secondary.front().path + "'");
}

std::optional<Version> ExportedVersion(const std::string& directory) {
  const std::filesystem::path first = PartPath(directory, 0, 0);
  return Exists(first) ? ExportLabel(first).version() : std::nullopt;
}

KernelFiles::KernelFiles(const std::string& directory, const ParallelConfig& parallel, std::string_view recipe) {
  const int rank = parallel.engine_rank();
  const int ranks = parallel.engine_size();
  for (int part = 0; Exists(PartPath(directory, rank, part)); ++part) {
    parts_.push_back(Checkpoint::Open(PartPath(directory, rank, part)));
    const std::vector<TensorSpec>& specs = parts_.back().specs();
    specs_.insert(specs_.end(), specs.begin(), specs.end());
    total_bytes_ += parts_.back().total_bytes();
  }
  if (parts_.empty()) {
    throw Error(ErrorCode::kNotFound, "expected " + PartPath(directory, rank, 0).string() + ", which is not there");
  }
  if (Exists(PartPath(directory, ranks, 0))) {
    throw Error(ErrorCode::kInvalidArgument, directory + " was written by more than " + std::to_string(ranks) +
                                                 " ranks: " + PartPath(directory, ranks, 0).filename().string() +
                                                 " is there too");
  }
  CheckLabels(directory, parallel, recipe);
}

// Compares every rank's files with rank 0's, and so all ranks' files with each other. If rank 0's file is not there,
// for example because it is on another host, the versions that the ranks report show a difference.
void KernelFiles::CheckLabels(const std::string& directory, const ParallelConfig& parallel, std::string_view recipe) {
  const int rank = parallel.engine_rank();
  label_.emplace(PartPath(directory, rank, 0));
  label_->CheckRank(parallel, recipe);
  for (std::size_t part = 1; part < parts_.size(); ++part) {
    const ExportLabel label(PartPath(directory, rank, static_cast<int>(part)));
    label.CheckRank(parallel, recipe);
    label.CheckVersion(*label_);
  }
  const std::filesystem::path first = PartPath(directory, 0, 0);
  if (rank != 0 && Exists(first)) label_->CheckVersion(ExportLabel(first));
}

std::unique_ptr<WeightsIterator> KernelFiles::Weights() const { return std::make_unique<OneAfterTheOther>(parts_); }

void CheckKernelFormat(std::span<const TensorSpec> specs, const KernelLayout& layout) {
  Awaited awaited(layout);
  for (const TensorSpec& spec : specs) awaited.Take(spec);
  awaited.CheckAllCame();
}

Manifest LoadKernelFormat(WeightsIterator& weights, const std::string& lineage, const KernelLayout& layout,
                          DerivedCheck& derived, LayerSink& sink, StageWork& work, WorkerPool& pool) {
  Awaited awaited(layout);
  std::vector<ManifestEntry> entries;
  while (std::optional<NamedTensor> named = weights.Next()) {
    const KernelTensor* tensor = awaited.Take({named->name, named->tensor.dtype, named->tensor.shape});
    if (tensor == nullptr || awaited.AnyProblem()) continue;
    entries.push_back(EntryOf(named->name, named->tensor, pool));
    CheckSign(*tensor, {named->tensor.data, static_cast<std::size_t>(named->tensor.num_bytes())});
    sink.Open({tensor, 1});
    const std::span<std::byte> bytes = sink.BytesOf(*tensor);
    work.Write(AsView({named->tensor.data, bytes.size()}), bytes.data());
    derived.Take(*tensor, {named->tensor.data, bytes.size()});
    sink.Close({tensor, 1});
  }
  awaited.CheckAllCame();
  return Manifest(lineage, 0, std::move(entries));
}

}  // namespace layercast

#include "engine_side/reload/sources/kernel_files.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "layercast/error.h"
#include "src/checkpoint/rank_files.h"

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

}  // namespace layercast

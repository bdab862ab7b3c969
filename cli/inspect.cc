// layercast inspect DIR: what a checkpoint holds, and whether index, headers and files agree.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/subcommand.h"
#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/base/worker_pool.h"
#include "src/checkpoint/survey.h"
#include "src/tensor/manifest_entry.h"

namespace layercast::cli {
namespace {

std::string FileName(const SafetensorsFile& file) { return file.path().filename().native(); }

// The same facts in both forms, gathered in one walk: reading the bytes is what costs.
class Report {
 public:
  explicit Report(const CheckpointSurvey& survey) : survey_(survey) {
    for (const auto& file : survey.files) json_["files"].push_back(FileName(*file));
    for (const auto& at : survey.tensors) AddTensor(at);
    json_["bytes"] = bytes_;
    AddVersionDigest();
    json_["ignored"] = survey.ignored;
    for (const auto& problem : survey.problems) json_["problems"].push_back(problem.message);
    AddSummary();
  }

  Json& json() { return json_; }
  const std::string& text() const { return text_; }

 private:
  void AddTensor(const CheckpointSurvey::Located& at) {
    const SafetensorsHeader::Stored& tensor = survey_.stored(at);
    const std::string file = FileName(*survey_.files[at.file]);
    const std::string digest = Read(survey_.Tensor(at)).ToHex();
    bytes_ += tensor.end - tensor.begin;
    json_["tensors"].push_back({{"name", tensor.spec.name},
                                {"dtype", Name(tensor.spec.dtype)},
                                {"shape", tensor.spec.shape},
                                {"file", file},
                                {"digest", digest}});
    text_ += digest + "  " + file + "  " + tensor.spec.name + "  " + Describe(tensor.spec) + "\n";
  }

  // The tensor's digest; its entry is kept for the version's.
  Digest Read(const NamedTensor& named) {
    try {
      entries_.push_back(EntryOf(named.name, named.tensor, pool_));
      return entries_.back().digest;
    } catch (const Error& error) {
      unpublishable_ = error.what();
      return DigestOf({named.tensor.data, static_cast<std::size_t>(named.tensor.num_bytes())});
    }
  }

  // What `status` shows of this checkpoint once it is published or served: null if it cannot be.
  void AddVersionDigest() {
    json_["digest"] = nullptr;
    if (!survey_.problems.empty()) return;
    try {
      if (!unpublishable_.empty()) throw Error(ErrorCode::kCorrupt, unpublishable_);
      const std::string digest = Manifest("", 0, std::move(entries_)).version().digest.ToHex();
      json_["digest"] = digest;
      text_ += digest + "  as a version\n";
    } catch (const Error& error) {
      log::warn("publishers would refuse this checkpoint: {}", error.what());
    }
  }

  void AddSummary() {
    text_ += std::to_string(survey_.tensors.size()) + " tensors, " + std::to_string(bytes_) + " bytes, " +
             std::to_string(survey_.files.size()) + " files\n";
    for (const std::string& name : survey_.ignored) text_ += "not in the index, ignored: " + name + "\n";
    for (const auto& problem : survey_.problems) text_ += "problem: " + problem.message + "\n";
    if (survey_.problems.empty()) text_ += "index, headers and files agree\n";
  }

  const CheckpointSurvey& survey_;
  WorkerPool pool_{std::max(1U, std::thread::hardware_concurrency())};
  std::uint64_t bytes_ = 0;
  std::vector<ManifestEntry> entries_;
  std::string unpublishable_;  // why; empty: nothing seen so far
  Json json_ = {{"files", Json::array()}, {"tensors", Json::array()}, {"bytes", 0},
                {"digest", nullptr},      {"ignored", Json::array()}, {"problems", Json::array()}};
  std::string text_;
};

class Inspect final : public Subcommand {
 public:
  const char* name() const override { return "inspect"; }
  const char* description() const override {
    return "Tensors, dtypes, shapes and digests of a checkpoint, and whether its files agree";
  }

  void Declare(CLI::App& app) override {
    app.add_option("DIR", path_, "A folder of safetensors files, with or without an index, or one such file")
        ->required();
  }

  void Run(Output& output) override {
    const CheckpointSurvey survey = SurveyCheckpoint(path_);
    Report report(survey);
    if (survey.problems.empty()) return output.Print(report.json(), report.text());
    const CheckpointSurvey::Problem& first = survey.problems.front();
    const std::size_t others = survey.problems.size() - 1;
    const Error error(first.code,
                      first.message + (others == 0 ? "" : " (and " + std::to_string(others) + " more problems)"));
    report.json()["error"] = ErrorToJson(error);
    output.Print(report.json(), report.text());
    throw error;
  }

 private:
  std::string path_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeInspect() { return std::make_unique<Inspect>(); }

}  // namespace layercast::cli

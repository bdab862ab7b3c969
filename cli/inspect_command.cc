// layercast inspect: what a checkpoint holds, and whether index, headers and files agree; or what an adapter holds.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/adapter_report.h"
#include "cli/arguments/arguments.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/reading_bar.h"
#include "layercast/model/registry.h"
#include "layercast/model_description.h"
#include "src/adapter/adapter_folder.h"
#include "src/base/digest/digest.h"
#include "src/base/log.h"
#include "src/base/threads/worker_pool.h"
#include "src/base/utf8.h"
#include "src/checkpoint/formats/survey.h"
#include "src/tensor/manifest/manifest_entry.h"

namespace layercast::cli {
namespace {

// Whether the description is of a draft model, which `--draft` takes and which is no family by itself.
bool IsDraft(const ModelRegistry& registry, const ModelDescription& description) {
  try {
    (void)registry.DraftConfigOf(description);
    return true;
  } catch (const Error& error) {
    return error.code() != ErrorCode::kUnsupported;
  }
}

// What an engine of this build would say of the folder's config.json if it knows no such architecture; else empty. A
// file that cannot be read is no matter here, as the tensors can be.
std::string WhyNotServed(const std::string& path) {
  const ModelRegistry registry = ModelRegistry::Builtin();
  try {
    const ModelDescription description = ModelDescription::FromDirectory(path);
    if (!IsDraft(registry, description)) (void)registry.ConfigOf(description);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) return error.what();
  }
  return {};
}

// Gathers a report's facts, as JSON and as text, in one walk, because reading the bytes is what costs.
class CheckpointReport {
 public:
  explicit CheckpointReport(const CheckpointSurvey& survey) : survey_(survey) {
    std::uint64_t total = 0;
    for (const auto& at : survey.tensors) total += static_cast<std::uint64_t>(at.spec.num_bytes());
    ReadingBar bar(total);
    for (const auto& file : survey.files) json_["files"].push_back(file->name());
    for (const auto& at : survey.tensors) {
      AddTensor(at);
      bar.Read(bytes_);
    }
    json_["bytes"] = bytes_;
    AddVersionDigest();
    json_["ignored"] = survey.ignored;
    for (const std::string& warning : survey.warnings) Warn(warning);
    for (const auto& problem : survey.problems) json_["problems"].push_back(problem.message);
    AddSummary();
  }

  Json& json() { return json_; }
  const std::string& text() const { return text_; }

 private:
  void AddTensor(const CheckpointSurvey::Located& at) {
    const std::string file = survey_.files[at.file]->name();
    const std::string digest = Digested(survey_.Read(at)).ToHex();
    bytes_ += static_cast<std::uint64_t>(at.spec.num_bytes());
    json_["tensors"].push_back({{"name", at.spec.name},
                                {"dtype", Name(at.spec.dtype)},
                                {"shape", at.spec.shape},
                                {"file", file},
                                {"digest", digest}});
    text_ += digest + "  " + Escaped(file) + "  " + Escaped(at.spec.name) + "  " + Describe(at.spec) + "\n";
  }

  // The tensor's digest. Its manifest entry is kept, for the version's digest.
  Digest Digested(const NamedTensor& named) {
    try {
      entries_.push_back(EntryOf(named.name, named.tensor, pool_));
      return entries_.back().digest;
    } catch (const Error& error) {
      unpublishable_ = error.what();
      return DigestOf({named.tensor.data, static_cast<std::size_t>(named.tensor.num_bytes())});
    }
  }

  // Adds the digest that `status` shows once this checkpoint is published or served. Null if it cannot be.
  void AddVersionDigest() {
    json_["digest"] = nullptr;
    if (!survey_.problems.empty()) return;
    try {
      if (!unpublishable_.empty()) throw Error(ErrorCode::kCorrupt, unpublishable_);
      const std::string digest = Manifest("", 0, std::move(entries_)).version().digest.ToHex();
      json_["digest"] = digest;
      text_ += digest + "  as a version\n";
    } catch (const Error& error) {
      Warn(std::string("publishers would refuse this checkpoint: ") + error.what());
    }
  }

  void Warn(const std::string& warning) {
    json_["warnings"].push_back(warning);
    log::warn("{}", warning);
  }

  void AddSummary() {
    text_ += std::to_string(survey_.tensors.size()) + " tensors, " + std::to_string(bytes_) + " bytes, " +
             std::to_string(survey_.files.size()) + " files\n";
    for (const std::string& name : survey_.ignored) text_ += "not read: " + Escaped(name) + "\n";
    if (survey_.problems.empty()) text_ += "index, headers and files agree\n";
  }

  const CheckpointSurvey& survey_;
  WorkerPool pool_{std::max(1U, std::thread::hardware_concurrency())};
  std::uint64_t bytes_ = 0;
  std::vector<ManifestEntry> entries_;
  std::string unpublishable_;  // why it cannot be published; empty: no reason seen so far
  Json json_ = {{"files", Json::array()},   {"tensors", Json::array()}, {"bytes", 0},
                {"digest", nullptr},        {"ignored", Json::array()}, {"warnings", Json::array()},
                {"problems", Json::array()}};
  std::string text_;
};

class Inspect final : public Subcommand {
 public:
  const char* name() const override { return "inspect"; }
  const char* description() const override {
    return "Lists tensors, dtypes, shapes and digests of a checkpoint, and checks that its files agree; of a LoRA "
           "adapter, "
           "its modules";
  }

  void Declare(CLI::App& app) override {
    checkpoint_.Declare(app, "The checkpoint's or adapter's folder, or one file of a checkpoint");
  }

  void Run(Output& output) override {
    const CheckpointSource source = checkpoint_.Source();
    const bool may_be_adapter = source.load_format == "auto" && source.secondary.empty();
    if (may_be_adapter && IsAdapterFolder(source.path)) return InspectAdapter(source.path, output);
    CheckpointSurvey survey = SurveyCheckpoint(source);
    // Only a warning, because a host program may have registered the architecture.
    if (std::string why = WhyNotServed(checkpoint_.path()); !why.empty()) survey.warnings.push_back(std::move(why));
    CheckpointReport report(survey);
    if (survey.problems.empty()) return output.Print(report.json(), report.text());
    output.PrintAndThrow(report.json(), report.text(), survey.problems.front().code, report.json()["problems"]);
  }

 private:
  CheckpointFlags checkpoint_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeInspect() { return std::make_unique<Inspect>(); }

}  // namespace layercast::cli

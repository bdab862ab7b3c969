#include "cli/adapter_report.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "cli/terminal/reading_bar.h"
#include "src/adapter/adapter_folder.h"
#include "src/adapter/adapter_tensors.h"
#include "src/adapter/tied_factors.h"
#include "src/base/log.h"
#include "src/base/threads/worker_pool.h"
#include "src/base/utf8.h"
#include "src/tensor/manifest/manifest_entry.h"

namespace layercast::cli {
namespace {

// Gathers the facts as JSON and as text.
class AdapterReport {
 public:
  explicit AdapterReport(const std::string& folder)
      : adapter_(folder), survey_(SurveyAdapter(adapter_.specs(), adapter_.config())) {
    ReadTensors();
    if (survey_.problems.empty()) {
      Try([&] {
        CheckTiedFactors(survey_, adapter_.config(), [&](std::uint32_t index) { return adapter_.Read(index); });
      });
    }
    for (const AdapterModule& module : survey_.modules) AddModule(module);
    AddConfig();
    for (const auto& copy : survey_.copies) json_["copies"].push_back(TensorJson(copy.tensor));
    json_["unused"] = survey_.unused;
    json_["warnings"] = survey_.warnings;
    for (const auto& problem : survey_.problems) json_["problems"].push_back(problem.message);
    AddSummary();
  }

  void Print(Output& output) const {
    for (const std::string& warning : survey_.warnings) log::warn("{}", warning);
    if (survey_.problems.empty()) return output.Print(json_, text_);
    output.PrintAndThrow(json_, text_, survey_.problems.front().code, json_["problems"]);
  }

 private:
  void Try(const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      survey_.problems.push_back({error.code(), error.what()});
    }
  }

  // A tensor that has a NaN, or cannot be read, is a problem, and has no summary.
  void ReadTensors() {
    WorkerPool pool(std::max(1U, std::thread::hardware_concurrency()));
    summaries_.resize(adapter_.specs().size());
    ReadingBar bar(TotalBytes(adapter_.specs()));
    for (std::size_t i = 0; i < summaries_.size(); ++i) {
      Try([&] { summaries_[i] = SummaryOf(adapter_.specs()[i].name, adapter_.Read(i).tensor, pool); });
      bytes_ += static_cast<std::uint64_t>(adapter_.specs()[i].num_bytes());
      bar.Read(bytes_);
    }
  }

  Json TensorJson(std::uint32_t index) const {
    const TensorSpec& spec = adapter_.specs()[index];
    const Digest& digest = summaries_[index].digest;
    return {{"name", spec.name},
            {"dtype", Name(spec.dtype)},
            {"shape", spec.shape},
            {"digest", digest ? Json(digest.ToHex()) : Json(nullptr)}};
  }

  void AddModule(const AdapterModule& module) {
    const bool zero = summaries_[module.b].amax == 0.0F;
    zero_modules_ += zero ? 1 : 0;
    json_["modules"].push_back({{"module", module.path},
                                {"parameter", module.parameter.empty() ? Json(nullptr) : Json(module.parameter)},
                                {"rank", module.rank},
                                {"experts", module.experts},
                                {"scale", module.scale},
                                {"embedding", module.embedding},
                                {"zero", zero},
                                {"a", TensorJson(module.a)},
                                {"b", TensorJson(module.b)}});
    text_ += Escaped(module.path) + (module.parameter.empty() ? "" : "." + module.parameter) + "  rank " +
             std::to_string(module.rank) +
             (module.experts == 0 ? "" : ", " + std::to_string(module.experts) + " experts") + ", scale " +
             Json(module.scale).dump() + "  A " + Describe(adapter_.specs()[module.a]) + ", B " +
             Describe(adapter_.specs()[module.b]) + (zero ? " (zero)" : "") + "\n";
  }

  void AddConfig() {
    const AdapterConfig& config = adapter_.config();
    json_["file"] = adapter_.file();
    json_["bytes"] = bytes_;
    json_["base_model_name_or_path"] = config.base_model_name_or_path;
    json_["peft_version"] = config.peft_version;
    json_["zero_modules"] = zero_modules_;
  }

  void AddSummary() {
    for (const auto& copy : survey_.copies) {
      text_ += "copy of the base: " + Escaped(adapter_.specs()[copy.tensor].name) + "\n";
    }
    for (const std::string& name : survey_.unused) text_ += "targeted, without a tensor: " + Escaped(name) + "\n";
    text_ += "adapter of " + std::to_string(survey_.modules.size()) + " modules, " + std::to_string(bytes_) + " bytes";
    if (zero_modules_ != 0) text_ += ", " + std::to_string(zero_modules_) + " of them with a B of zeros";
    text_ += '\n';
  }

  const AdapterFolder adapter_;
  AdapterTensors survey_;
  std::vector<TensorSummary> summaries_;  // by the index of the spec
  std::uint64_t bytes_ = 0;
  std::size_t zero_modules_ = 0;
  Json json_ = {{"modules", Json::array()},
                {"copies", Json::array()},
                {"unused", Json::array()},
                {"warnings", Json::array()},
                {"problems", Json::array()}};
  std::string text_;
};

}  // namespace

void InspectAdapter(const std::string& folder, Output& output) { AdapterReport(folder).Print(output); }

}  // namespace layercast::cli

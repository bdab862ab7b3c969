#include "src/checkpoint/survey.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "layercast/memory.h"
#include "src/base/utf8.h"
#include "src/checkpoint/natural_order.h"
#include "src/checkpoint/weight_index.h"

namespace layercast {
namespace {

namespace fs = std::filesystem;

// What cannot be asked is not there; opening it would say why.
bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Names in the folder that end in `suffix`, in natural order.
std::vector<std::string> FilesEndingIn(const fs::path& folder, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().native();
    if (name.ends_with(suffix) && !name.starts_with('.')) names.push_back(std::move(name));
  }
  if (error) throw Error(ErrorCode::kInvalidArgument, Quote(folder.native()) + ": cannot list: " + error.message());
  std::ranges::sort(names, NaturalLess);
  return names;
}

[[noreturn]] void FailWithoutWeights(const fs::path& folder) {
  std::string message = Quote(folder.native()) + ": no weights: looked for " + kWeightIndexName + " and *.safetensors";
  for (const std::string_view suffix : {".bin", ".pt", ".pth", ".gguf"}) {
    const std::vector<std::string> found = FilesEndingIn(folder, suffix);
    if (!found.empty())
      message += "; " + Quote(found.front()) + " is there, but *" + std::string(suffix) + " is not read";
  }
  throw Error(ErrorCode::kNotFound, message);
}

bool IsAligned(const TensorView& tensor) {
  const std::size_t alignment = static_cast<std::size_t>(std::max(BitsPerElement(tensor.dtype) / 8, 1));
  return reinterpret_cast<std::uintptr_t>(tensor.data) % alignment == 0;
}

// Makes `tensor` a view of a copy, and owns the copy.
std::shared_ptr<const void> CopyAligned(TensorView& tensor) {
  struct Copy {
    HostMemory memory;
    Buffer buffer;
  };
  const auto copy = std::make_shared<Copy>();
  const auto bytes = static_cast<std::size_t>(tensor.num_bytes());
  copy->buffer = Buffer(copy->memory, bytes);
  if (bytes != 0) std::memcpy(copy->buffer.data(), tensor.data, bytes);
  tensor.data = copy->buffer.data();
  return copy;
}

// Where each name is, while the survey is made.
class Surveyor {
 public:
  explicit Surveyor(const fs::path& path) { survey_.path = path; }

  void Open(const std::vector<std::string>& names, const fs::path& folder) {
    for (const std::string& name : names) {
      try {
        survey_.files.push_back(std::make_shared<const SafetensorsFile>(folder / name));
        AddTensors(survey_.files.size() - 1);
      } catch (const Error& error) {
        Report(error.code(), error.what());
      }
    }
  }

  void CompareWith(const WeightIndex& index, const fs::path& folder) {
    for (const auto& [tensor, file] : index.weight_map) {
      const auto where = by_name_.find(tensor);
      if (where != by_name_.end() && FileName(where->second) == file) continue;
      if (std::ranges::none_of(survey_.files, [&](const auto& open) { return open->path().filename() == file; })) {
        continue;  // said already: the file is missing or broken
      }
      const std::string got =
          where == by_name_.end() ? "nothing of that name" : "it in " + Quote(FileName(where->second));
      Report(ErrorCode::kCorrupt, Quote((folder / kWeightIndexName).native()) + ": tensor " + Quote(tensor) +
                                      ": expected in " + Quote(file) + ", got " + got);
    }
    for (const auto& at : survey_.tensors) {
      const std::string& name = survey_.stored(at).spec.name;
      if (index.weight_map.contains(name)) continue;
      Report(ErrorCode::kCorrupt, Quote(survey_.files[at.file]->path().native()) + ": tensor " + Quote(name) +
                                      ": expected in the weight_map of " + kWeightIndexName + ", got no entry");
    }
  }

  // Before Open, so that the sentence about all missing files comes first.
  void ReportMissing(const std::vector<std::string>& names, const fs::path& folder, std::vector<std::string>& present) {
    std::string missing;
    for (const std::string& name : names) {
      if (Exists(folder / name)) {
        present.push_back(name);
      } else {
        missing += (missing.empty() ? "" : ", ") + Quote(name);
      }
    }
    if (missing.empty()) return;
    Report(ErrorCode::kNotFound, Quote(folder.native()) + ": weight files referenced in index but missing: " + missing);
  }

  void Ignore(std::vector<std::string> names) { survey_.ignored = std::move(names); }
  CheckpointSurvey Take() && { return std::move(survey_); }

 private:
  void AddTensors(std::size_t file) {
    const auto& tensors = survey_.files[file]->tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const CheckpointSurvey::Located here{.file = file, .tensor = i};
      const auto [first, is_new] = by_name_.try_emplace(tensors[i].spec.name, here);
      if (is_new) {
        survey_.tensors.push_back(here);
      } else {
        Report(ErrorCode::kCorrupt, Quote(survey_.path.native()) + ": tensor " + Quote(tensors[i].spec.name) +
                                        ": expected once, got it in " + Quote(FileName(first->second)) + " and in " +
                                        Quote(FileName(here)));
      }
    }
  }

  std::string FileName(const CheckpointSurvey::Located& at) const {
    return survey_.files[at.file]->path().filename().native();
  }

  void Report(ErrorCode code, std::string message) { survey_.problems.push_back({code, std::move(message)}); }

  CheckpointSurvey survey_;
  std::unordered_map<std::string_view, CheckpointSurvey::Located> by_name_;  // the keys live in the files' headers
};

CheckpointSurvey SurveyFolder(const fs::path& folder) {
  Surveyor surveyor(folder);
  std::vector<std::string> found = FilesEndingIn(folder, ".safetensors");
  if (!Exists(folder / kWeightIndexName)) {
    if (found.empty()) FailWithoutWeights(folder);
    surveyor.Open(found, folder);
    return std::move(surveyor).Take();
  }
  const WeightIndex index = ReadWeightIndex(folder / kWeightIndexName);
  const std::vector<std::string> wanted = index.Files();
  std::vector<std::string> present;
  surveyor.ReportMissing(wanted, folder, present);
  surveyor.Open(present, folder);
  surveyor.CompareWith(index, folder);
  std::erase_if(found, [&](const std::string& name) { return std::ranges::find(wanted, name) != wanted.end(); });
  surveyor.Ignore(std::move(found));
  return std::move(surveyor).Take();
}

}  // namespace

NamedTensor CheckpointSurvey::Tensor(const Located& at) const {
  const std::shared_ptr<const SafetensorsFile>& file = files[at.file];
  NamedTensor named{.name = stored(at).spec.name, .tensor = file->View(at.tensor), .owner = file};
  if (!IsAligned(named.tensor)) named.owner = CopyAligned(named.tensor);
  return named;
}

CheckpointSurvey SurveyCheckpoint(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return SurveyFolder(path);
  if (!fs::exists(status)) {
    throw Error(ErrorCode::kNotFound, Quote(path.native()) + ": no such checkpoint folder or file");
  }
  Surveyor surveyor(path);
  surveyor.Open({path.filename().native()}, path.parent_path());
  return std::move(surveyor).Take();
}

}  // namespace layercast

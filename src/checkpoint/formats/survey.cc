#include "src/checkpoint/formats/survey.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "src/base/exhausted.h"
#include "src/base/utf8.h"
#include "src/checkpoint/formats/load_format.h"
#include "src/checkpoint/natural_order.h"
#include "src/checkpoint/rank_files.h"
#include "src/checkpoint/safetensors/safetensors_loader.h"
#include "src/checkpoint/safetensors/weight_index.h"
#include "src/checkpoint/shard_names.h"

namespace layercast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNamed = 100;  // how many missing files are named

// Whether there is such a file. If that cannot be found out, the answer is no; opening it would say why.
bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The names of the folder's files, without hidden ones, in natural order.
std::vector<std::string> FilesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().native();
    if (!name.starts_with('.')) names.push_back(std::move(name));
  }
  if (error) throw SystemError(error.value(), ErrorCode::kInvalidArgument, Quote(folder.native()) + ": cannot list");
  std::ranges::sort(names, NaturalLess);
  return names;
}

[[noreturn]] void FailWithoutWeights(const fs::path& folder, const std::string& format,
                                     const std::vector<std::string>& names) {
  std::string message = Quote(folder.native()) + ": no weights: looked for ";
  const LoadFormat& wanted = LoadFormatNamed(format);
  if (wanted.make != nullptr) message += wanted.what;
  for (const LoadFormat& other : AllLoadFormats()) {
    if (wanted.make != nullptr || other.make == nullptr) continue;
    message += (message.ends_with("for ") ? "" : "; ") + std::string(other.what);
  }
  const std::vector<std::string> found = WeightFiles(names);
  if (!found.empty()) message += "; " + Quote(found.front()) + " is of another format";
  throw Error(ErrorCode::kNotFound, message);
}

// Makes a survey, and remembers where each name was found.
class Surveyor {
 public:
  explicit Surveyor(const CheckpointSource& source) { survey_.source = source; }

  CheckpointSurvey Survey() && {
    const CheckpointSource source = survey_.source;
    Add(source.path, "");
    survey_.own_files = survey_.files.size();
    for (const CheckpointSource::Secondary& more : source.secondary) Add(more.path, more.prefix);
    return std::move(survey_);
  }

 private:
  // Adds a folder or a file, whose tensors' names get the prefix.
  void Add(const fs::path& path, const std::string& prefix) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      throw Error(ErrorCode::kNotFound, Quote(path.native()) +
                                            ": no such checkpoint folder or file (names of a hub are not looked up: "
                                            "download it first)");
    }
    if (fs::is_directory(status)) return AddFolder(path, prefix);
    const std::vector<std::string> name = {path.filename().native()};
    auto loader = ChooseLoader(survey_.source.load_format, name);
    if (loader == nullptr) loader = MakeSafetensorsLoader();  // whatever the file is called
    Open(*loader, name, path.parent_path(), prefix);
  }

  void AddFolder(const fs::path& folder, const std::string& prefix) {
    const std::vector<std::string> names = FilesIn(folder);
    const auto loader = ChooseLoader(survey_.source.load_format, names);
    if (loader == nullptr) FailWithoutWeights(folder, survey_.source.load_format, names);
    std::vector<std::string> wanted;
    if (std::ranges::find(names, loader->index_name()) != names.end()) {
      wanted = AddIndexed(*loader, folder, prefix);
    } else {
      wanted = loader->Choose(names);
      if (wanted.empty()) FailWithoutWeights(folder, survey_.source.load_format, names);
      if (!loader->index_name().empty()) {  // parts of GGUF files say themselves what is missing
        ReportMissing(MissingShards(wanted), folder,
                      "expected every file of those that are numbered, got none called ");
      }
      Open(*loader, wanted, folder, prefix);
    }
    for (const std::string& name : WeightFiles(names)) {
      if (std::ranges::find(wanted, name) == wanted.end()) survey_.ignored.push_back(name);
    }
  }

  // Returns the files that the index mentions. The index alone decides which file's tensor is read: files that were
  // merged or split again are published with older copies left in other files.
  std::vector<std::string> AddIndexed(const Loader& loader, const fs::path& folder, const std::string& prefix) {
    const fs::path path = folder / loader.index_name();
    const WeightIndex index = ReadWeightIndex(path);
    std::vector<std::string> wanted = index.Files();
    std::vector<std::string> present;
    std::vector<std::string> missing;
    for (const std::string& name : wanted) (Exists(folder / name) ? present : missing).push_back(name);
    ReportMissing(missing, folder, "weight files referenced in index but missing: ");  // reported before all others
    const Assignment assigned = AssignmentBy(index, loader);
    const Span from = Open(loader, present, folder, prefix, assigned);
    KeepMisplaced(from);
    CompareWith(index, loader, path, from);
    WarnOfCopies(path, from);
    return wanted;
  }

  // The file in which each tensor is to be read, by the name that TensorFile::spec has for it. Empty: no index says so.
  using Assignment = std::unordered_map<std::string, std::string>;

  static Assignment AssignmentBy(const WeightIndex& index, const Loader& loader) {
    Assignment assigned;
    for (const auto& [tensor, file] : index.weight_map) assigned.emplace(loader.NameOf(tensor), file);
    return assigned;
  }

  // Where in the survey the contents of one source begin.
  struct Span {
    std::size_t first_file = 0;
    std::size_t first_tensor = 0;
    std::size_t first_copy = 0;
    std::size_t prefix_bytes = 0;
  };

  Span Open(const Loader& loader, const std::vector<std::string>& names, const fs::path& folder,
            const std::string& prefix, const Assignment& assigned = {}) {
    const Span from{survey_.files.size(), survey_.tensors.size(), copies_.size(), prefix.size()};
    for (const std::string& name : names) {
      try {
        survey_.files.push_back(loader.Open(folder / name));
        AddTensors(survey_.files.size() - 1, prefix, assigned);
      } catch (const Error& error) {
        Report(error.code(), error.what());
      }
    }
    CompareHeads(folder / "config.json", from);
    return from;
  }

  void AddTensors(std::size_t file, const std::string& prefix, const Assignment& assigned) {
    for (std::size_t i = 0; i < survey_.files[file]->num_tensors(); ++i) {
      CheckpointSurvey::Located here{.spec = survey_.files[file]->spec(i), .file = file, .tensor = i};
      const auto where = assigned.find(here.spec.name);
      here.spec.name.insert(0, prefix);
      if (where != assigned.end() && where->second != survey_.files[file]->name()) {
        copies_.push_back(std::move(here));
        continue;
      }
      const auto [first, is_new] = by_name_.try_emplace(here.spec.name, survey_.tensors.size());
      if (is_new) {
        survey_.tensors.push_back(std::move(here));
      } else {
        ReportTwice(here.spec.name, FileOf(first->second), survey_.files[file]->name());
      }
    }
  }

  void ReportTwice(const std::string& tensor, const std::string& first, const std::string& second) {
    if (!IsRankFile(first) || !IsRankFile(second)) {
      return Report(ErrorCode::kCorrupt, Quote(survey_.source.path) + ": tensor " + Quote(tensor) +
                                             ": expected once, got it in " + Quote(first) + " and in " + Quote(second));
    }
    if (std::exchange(of_ranks_, true)) return;  // said of all tensors at once
    Report(ErrorCode::kInvalidArgument,
           Quote(survey_.source.path) +
               ": expected a checkpoint, got files of several ranks, as `layercast export` writes them "
               "(`layercast serve` starts from them: --load-format sharded_state)");
  }

  // Reports the missing files in one sentence, which begins with `what`.
  void ReportMissing(const std::vector<std::string>& missing, const fs::path& folder, const std::string& what) {
    if (missing.empty()) return;
    std::string listed;
    const std::size_t shown = std::min(missing.size(), kMostNamed);
    for (std::size_t i = 0; i < shown; ++i) listed += (i == 0 ? "" : ", ") + Quote(missing[i]);
    if (shown < missing.size()) listed += " and " + std::to_string(missing.size() - shown) + " more";
    Report(ErrorCode::kNotFound, Quote(folder.native()) + ": " + what + listed);
  }

  void CompareHeads(const fs::path& config, const Span& from) {
    std::set<std::string> different;  // a set, because files of one model repeat what the first says
    for (std::size_t i = from.first_file; i < survey_.files.size(); ++i) {
      const HeadCounts* const said = survey_.files[i]->head_counts();
      if (said == nullptr) continue;
      std::ranges::move(Differences(*said, ConfigHeads::Read(config), Quote(config.native())),
                        std::inserter(different, different.end()));
    }
    for (const std::string& message : different) Report(ErrorCode::kCorrupt, message);
  }

  void CompareWith(const WeightIndex& index, const Loader& loader, const fs::path& path, const Span& from) {
    const std::string quoted = Quote(path.native());
    std::unordered_map<std::string_view, std::string> found;  // name -> file
    std::uint64_t bytes = 0;
    for (std::size_t i = from.first_tensor; i < survey_.tensors.size(); ++i) {
      const TensorSpec& spec = survey_.tensors[i].spec;
      bytes += static_cast<std::uint64_t>(spec.num_bytes());
      found.emplace(std::string_view(spec.name).substr(from.prefix_bytes), FileOf(i));
    }
    std::uint64_t copied = 0;  // bytes of copies that are passed over
    for (std::size_t i = from.first_copy; i < copies_.size(); ++i) {
      copied += static_cast<std::uint64_t>(copies_[i].spec.num_bytes());
    }
    std::set<std::string> listed;
    for (const auto& [tensor, file] : index.weight_map) {
      const auto where = found.find(*listed.insert(loader.NameOf(tensor)).first);
      if (where != found.end() && where->second == file) continue;
      if (!IsOpen(file, from)) continue;  // the file is missing or broken, which has been reported
      const std::string got = where == found.end() ? "nothing of that name" : "it in " + Quote(where->second);
      Report(ErrorCode::kCorrupt,
             quoted + ": tensor " + Quote(tensor) + ": expected in " + Quote(file) + ", got " + got);
    }
    for (std::size_t i = from.first_tensor; i < survey_.tensors.size(); ++i) {
      const std::string name = survey_.tensors[i].spec.name.substr(from.prefix_bytes);
      if (listed.contains(name)) continue;
      const auto& file = survey_.files[survey_.tensors[i].file];
      Report(ErrorCode::kCorrupt, Quote(file->path().native()) + ": tensor " + Quote(name) +
                                      ": expected in the weight_map of " + path.filename().native() + ", got no entry");
    }
    // Some writers count tied tensors twice, so a different size is no reason to refuse.
    if (!survey_.problems.empty() || !index.total_size) return;
    if (*index.total_size == bytes || *index.total_size == bytes + copied) return;
    survey_.warnings.push_back(quoted + ": metadata.total_size: expected the " + std::to_string(bytes) +
                               " bytes of its tensors, got " + std::to_string(*index.total_size));
  }

  // A tensor that is not in the file that the index says is no copy, and is listed where it is.
  void KeepMisplaced(const Span& from) {
    const auto first = copies_.begin() + static_cast<std::ptrdiff_t>(from.first_copy);
    const auto kept = std::remove_if(first, copies_.end(), [&](const CheckpointSurvey::Located& here) {
      if (!by_name_.try_emplace(here.spec.name, survey_.tensors.size()).second) return false;
      survey_.tensors.push_back(here);
      return true;
    });
    copies_.erase(kept, copies_.end());
  }

  // Says once, whatever their number, that copies were passed over.
  void WarnOfCopies(const fs::path& path, const Span& from) {
    const std::size_t count = copies_.size() - from.first_copy;
    if (count == 0 || !survey_.problems.empty()) return;
    const CheckpointSurvey::Located& copy = copies_[from.first_copy];
    survey_.warnings.push_back(
        Quote(path.native()) + ": tensors are read from the files that it says: " + std::to_string(count) +
        (count == 1 ? " copy" : " copies") + " in other files passed over, " + Quote(copy.spec.name) + " of " +
        Quote(survey_.files[copy.file]->name()) + (count == 1 ? "" : " for one"));
  }

  bool IsOpen(const std::string& name, const Span& from) const {
    return std::any_of(survey_.files.begin() + static_cast<std::ptrdiff_t>(from.first_file), survey_.files.end(),
                       [&](const auto& file) { return file->name() == name; });
  }

  std::string FileOf(std::size_t tensor) const { return survey_.files[survey_.tensors[tensor].file]->name(); }
  void Report(ErrorCode code, std::string message) { survey_.problems.push_back({code, std::move(message)}); }

  CheckpointSurvey survey_;
  std::unordered_map<std::string, std::size_t> by_name_;  // the index in survey_.tensors
  std::vector<CheckpointSurvey::Located> copies_;         // tensors that their index has in other files
  bool of_ranks_ = false;                                 // this was reported
};

}  // namespace

NamedTensor CheckpointSurvey::Read(const Located& at) const {
  NamedTensor named = ReadAligned(files[at.file], at.tensor);
  named.name = at.spec.name;
  return named;
}

CheckpointSurvey SurveyCheckpoint(const CheckpointSource& source) { return Surveyor(source).Survey(); }

}  // namespace layercast

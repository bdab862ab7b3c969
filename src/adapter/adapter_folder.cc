#include "src/adapter/adapter_folder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "layercast/error.h"
#include "src/adapter/adapter_names.h"
#include "src/base/naming_source.h"
#include "src/base/utf8.h"
#include "src/checkpoint/safetensors/safetensors_loader.h"
#include "src/checkpoint/torch_save/pt_loader.h"

namespace layercast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestConfig = 16U << 20;
constexpr std::string_view kStem = "adapter_model";

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().native());
  }
  if (error) throw Error(ErrorCode::kInvalidArgument, "cannot list the folder: " + error.message());
  std::ranges::sort(names);
  return names;
}

// "adapter_model.bin", and what is part of a split one: "adapter_model-00001-of-00002.bin", or an index.
bool HoldsTensors(std::string_view name) {
  if (!name.starts_with(kStem)) return false;
  const std::string_view rest = name.substr(kStem.size());
  if (!rest.starts_with('.') && !rest.starts_with('-')) return false;
  return rest.ends_with(".safetensors") || rest.ends_with(".bin") || rest.ends_with(".pt") ||
         rest.ends_with(".index.json");
}

// The one file of tensors. A name says that it is one before its content is looked at, so nothing is left aside.
std::string ChooseFile(const fs::path& folder) {
  std::vector<std::string> found;
  for (const std::string& name : NamesIn(folder)) {
    if (name == "new_embeddings.safetensors" || name == "new_embeddings.bin") {
      throw Error(
          ErrorCode::kUnsupported,
          Quote(name) + ": adapters that add tokens are not served: resize the base's embedding, and train that");
    }
    if (HoldsTensors(name)) found.push_back(name);
  }
  constexpr std::array<std::string_view, 3> kRead = {"adapter_model.safetensors", "adapter_model.bin",
                                                     "adapter_model.pt"};
  if (found.size() == 1 && std::ranges::find(kRead, found.front()) != kRead.end()) return found.front();
  std::string got;
  for (const std::string& name : found) got += (got.empty() ? "" : ", ") + Quote(name);
  if (found.empty()) {
    throw Error(ErrorCode::kNotFound,
                "expected adapter_model.safetensors, adapter_model.bin or adapter_model.pt, got none");
  }
  throw Error(ErrorCode::kInvalidArgument,
              "expected one of adapter_model.safetensors, adapter_model.bin and adapter_model.pt, got " + got);
}

std::shared_ptr<const TensorFile> OpenTensors(const fs::path& folder) {
  const std::string name = NamingSource(Quote(folder.native()), [&] { return ChooseFile(folder); });
  return (name.ends_with(".safetensors") ? MakeSafetensorsLoader() : MakePtLoader())->Open(folder / name);
}

std::string ReadConfig(const fs::path& folder) {
  const fs::path path = folder / kAdapterConfigFile;
  std::error_code ignored;
  if (fs::is_directory(folder, ignored) && !IsAdapterFolder(folder)) {
    throw Error(ErrorCode::kNotFound, Quote(folder.native()) + ": expected an adapter_config.json, got none");
  }
  const MappedFile file(path);
  if (file.bytes().size() > kLargestConfig) {
    throw Error(ErrorCode::kInvalidArgument, Quote(path.native()) + ": expected at most " +
                                                 std::to_string(kLargestConfig) + " bytes, got " +
                                                 std::to_string(file.bytes().size()));
  }
  file.Populate(file.bytes());
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::vector<TensorSpec> SpecsOf(const TensorFile& file) {
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < file.num_tensors(); ++i) specs.push_back(file.spec(i));
  return specs;
}

// Whole modules are many tensors that one word of the configuration stands for: each is named, before that is read.
void RefuseWholeModules(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) {
    if (IsWholeModuleName(spec.name)) names += (names.empty() ? "" : ", ") + Quote(spec.name);
  }
  if (names.empty()) return;
  throw Error(ErrorCode::kUnsupported,
              "whole copies of modules (modules_to_save) are not served: publish them with the base: got " + names);
}

}  // namespace

bool IsAdapterFolder(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path / kAdapterConfigFile, ignored));
}

AdapterFolder::AdapterFolder(fs::path folder) : path_(std::move(folder)) {
  config_text_ = ReadConfig(path_);
  file_ = OpenTensors(path_);
  specs_ = SpecsOf(*file_);
  NamingSource(Quote((path_ / file()).native()), [&] { RefuseWholeModules(specs_); });
  config_ = NamingSource(Quote(path_.native()), [&] { return AdapterConfig::FromJson(config_text_); });
}

NamedTensor AdapterFolder::Read(std::size_t index) const { return ReadAligned(file_, index); }

}  // namespace layercast

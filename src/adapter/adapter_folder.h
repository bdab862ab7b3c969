// An adapter on disk, as PEFT's save_pretrained writes it: adapter_config.json and one file of tensors. Used by cold
// loads of adapters, publishers and `layercast inspect`.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "layercast/adapter_config.h"
#include "layercast/tensor.h"
#include "src/checkpoint/loader.h"

namespace layercast {

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";

// Whether the path is a folder that says that it holds an adapter: it has an adapter_config.json.
bool IsAdapterFolder(const std::filesystem::path& path);

// Resource; immutable, so any thread may read.
class AdapterFolder {
 public:
  // Reads the configuration, and the header of adapter_model.safetensors, .bin or .pt. Throws kNotFound, naming what is
  // missing; kInvalidArgument if there are several files of tensors, or an index; kUnsupported for new_embeddings and
  // for whole modules, naming each; and what AdapterConfig::FromJson and the readers of those files throw.
  explicit AdapterFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return path_; }
  std::string file() const { return file_->name(); }  // the file of tensors: "adapter_model.safetensors"
  const std::string& config_text() const { return config_text_; }
  const AdapterConfig& config() const { return config_; }
  const std::vector<TensorSpec>& specs() const { return specs_; }  // in the file's order

  // A tensor of specs(), in memory, aligned, and kept alive by its owner. Throws kCorrupt if the file is damaged or has
  // become shorter.
  NamedTensor Read(std::size_t index) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const TensorFile> file_;  // shared_ptr: the second owner is a tensor that outlives this object
  std::vector<TensorSpec> specs_;
  std::string config_text_;
  AdapterConfig config_;
};

}  // namespace layercast

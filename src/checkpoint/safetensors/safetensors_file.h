// One safetensors file, mapped. Its tensors are views into the mapping. Used by the loaders of formats that write such
// files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/checkpoint/loader.h"
#include "src/checkpoint/safetensors/safetensors_header.h"

namespace layercast {

// Resource; immutable, so any thread may read.
class SafetensorsFile : public TensorFile {
 public:
  // Reads the header alone. Throws what TensorFile and ParseSafetensors throw.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<SafetensorsHeader::Stored>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  std::size_t num_tensors() const override { return header_.tensors.size(); }
  const TensorSpec& spec(std::size_t index) const override { return header_.tensors.at(index).spec; }
  NamedTensor Read(std::size_t index) const override;

 private:
  SafetensorsHeader header_;
};

}  // namespace layercast

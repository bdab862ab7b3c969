// One safetensors file, mapped: its tensors are views into the mapping. Checkpoint is made of these.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "layercast/tensor.h"
#include "src/checkpoint/mapped_file.h"
#include "src/checkpoint/safetensors_header.h"

namespace layercast {

// Resource; immutable, so any thread may read. Views last as long as it does.
class SafetensorsFile {
 public:
  // Throws as MappedFile and ParseSafetensors do. Reads the header alone.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // In the order of their bytes in the file.
  const std::vector<SafetensorsHeader::Stored>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // The format does not promise that `data` is aligned to the element type.
  TensorView View(std::size_t index) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace layercast

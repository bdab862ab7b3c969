// What a checkpoint folder (or file) holds, and everything in it that does not agree. Checkpoint refuses what `inspect`
// lists: both read this.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/checkpoint/safetensors_file.h"

namespace layercast {

// Value.
struct CheckpointSurvey {
  struct Located {
    std::size_t file = 0;    // in `files`
    std::size_t tensor = 0;  // in that file's tensors()
  };
  struct Problem {
    ErrorCode code;
    std::string message;
  };

  std::filesystem::path path;
  // In natural order, unreadable ones left out.
  // shared_ptr: the second owner is a tensor that outlives its Checkpoint (NamedTensor::owner).
  std::vector<std::shared_ptr<const SafetensorsFile>> files;
  std::vector<Located> tensors;      // file order, then offset order; of a repeated name the first
  std::vector<std::string> ignored;  // *.safetensors that the index does not mention: copies in another layout
  std::vector<Problem> problems;     // files that are missing or broken; index and headers that differ; repeated names

  const SafetensorsHeader::Stored& stored(const Located& at) const { return files[at.file]->tensors()[at.tensor]; }
  // A view into the mapped file, which `owner` keeps mapped; where the file does not align the tensor to its element
  // type, of an aligned copy that `owner` owns.
  NamedTensor Tensor(const Located& at) const;
};

// `path` is a safetensors file, or a folder: its files are those that model.safetensors.index.json mentions, else every
// *.safetensors. Throws kNotFound if there is nothing to read, saying what was looked for, and as ReadWeightIndex does.
CheckpointSurvey SurveyCheckpoint(const std::filesystem::path& path);

}  // namespace layercast

// What a checkpoint folder (or file) holds, and everything in it that does not agree. Checkpoint refuses what `inspect`
// lists: both read this.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "layercast/checkpoint_source.h"
#include "layercast/error.h"
#include "layercast/tensor.h"
#include "src/checkpoint/loader.h"

namespace layercast {

// Value.
struct CheckpointSurvey {
  struct Located {
    TensorSpec spec;
    std::size_t file = 0;    // in `files`
    std::size_t tensor = 0;  // in that file
  };
  struct Problem {
    ErrorCode code;
    std::string message;
  };

  CheckpointSource source;
  // In natural order, unreadable ones left out; then those of the secondary sources.
  // shared_ptr: the second owner is a tensor that outlives its Checkpoint (NamedTensor::owner).
  std::vector<std::shared_ptr<const TensorFile>> files;
  std::size_t own_files = 0;         // of them, those that are not of secondary sources
  std::vector<Located> tensors;      // file order, then offset order; of a repeated name the first
  std::vector<std::string> ignored;  // weight files that are not read: other formats, copies, not in the index
  // Files that are missing or broken; index and headers that differ; names that are repeated; heads of another number
  // than in the config.json beside them.
  std::vector<Problem> problems;
  std::vector<std::string> warnings;  // what is odd, and no reason to refuse

  // As TensorFile::Read, in memory (MappedFile::Populate), aligned to its element type, and kept alive by its owner.
  // Throws kCorrupt where the file turns out to be damaged, or has become shorter.
  NamedTensor Read(const Located& at) const;
};

// A folder's files are those that the loader's index mentions, else those that it chooses. Throws kNotFound if there is
// nothing to read, saying what was looked for, and as ReadWeightIndex and ChooseLoader do.
CheckpointSurvey SurveyCheckpoint(const CheckpointSource& source);

}  // namespace layercast

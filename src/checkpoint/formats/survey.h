// What a checkpoint folder (or file) holds, and everything in it that is inconsistent. Used by Checkpoint, which
// refuses such problems, and by `layercast inspect`, which lists them.
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
    std::size_t file = 0;    // its index in `files`
    std::size_t tensor = 0;  // the tensor's index in that file
  };
  struct Problem {
    ErrorCode code;
    std::string message;
  };

  CheckpointSource source;
  // The files in natural order, without unreadable ones, followed by those of secondary sources.
  // shared_ptr: the second owner is a tensor that outlives its Checkpoint (NamedTensor::owner).
  std::vector<std::shared_ptr<const TensorFile>> files;
  std::size_t own_files = 0;  // how many of them are not of secondary sources
  // By file, then by offset. Of a repeated name it is the one in the file that the index says, or else the first.
  std::vector<Located> tensors;
  std::vector<std::string> ignored;  // weight files that are not read: other formats, copies, not in the index
  // Files that are missing or broken; differences between index and headers; repeated names; numbers of heads that
  // differ from those in the config.json beside the files.
  std::vector<Problem> problems;
  std::vector<std::string> warnings;  // what is odd, but no reason to refuse: copies that an index passes over, ...

  // Reads a tensor as ReadAligned does.
  NamedTensor Read(const Located& at) const;
};

// Surveys a checkpoint. Of a folder it reads the files that the loader's index mentions, or, without an index, those
// that the loader chooses. Throws kNotFound, saying what was looked for, if there is nothing to read, and what
// ReadWeightIndex and ChooseLoader throw.
CheckpointSurvey SurveyCheckpoint(const CheckpointSource& source);

}  // namespace layercast

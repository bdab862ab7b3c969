// A trainer's names and layouts of tensors, from one JSON file (engine_side/model/tree/WEIGHT_RULES.md). The file
// declares name rules and transforms without a host program: `layercast plan` and `layercast serve` take it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "layercast/export.h"
#include "layercast/model/module.h"
#include "layercast/model/source_transforms.h"
#include "layercast/model/weights_mapper.h"

namespace layercast {

// Immutable value.
struct LAYERCAST_PUBLIC WeightRules {
  SourceTransforms transforms{};  // these match the checkpoint's names
  WeightsMapper names{};          // these match the names that transforms make; applied before the family's own rules

  // Throws kInvalidArgument, naming the field ("transforms[2].split.axis: expected an integer of at least 0, got -1"),
  // the rule, or the place where the text is not JSON.
  static WeightRules Parse(std::string_view json);
  // Parses the text of the file at `path`, with which messages then begin.
  static WeightRules Parse(std::string_view json, const std::filesystem::path& path);
  // Parses what TextOf returns.
  static WeightRules FromFile(const std::filesystem::path& path);
  // Reads such a file. Throws kNotFound, or kInvalidArgument if it is too long; messages begin with the path.
  static std::string TextOf(const std::filesystem::path& path);

  // Sets the transforms of `root`, and puts the names before its mapper. Call it before a Receiver takes the tree.
  void ApplyTo(Module& root) const;
};

}  // namespace layercast

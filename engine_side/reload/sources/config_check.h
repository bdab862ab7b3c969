// Holds the configuration that comes with new weights against the one that the engine was built from. Used by the
// stager, before a byte moves, and by `layercast plan`.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_side/model/registry/served_config.h"
#include "layercast/checkpoint_source.h"

namespace layercast {

// What a source says of its model. Value.
struct SourceConfig {
  std::string from;        // "publisher tcp://...", for messages
  std::string text;        // a config.json, or some of its fields; empty: the source says nothing
  bool is_drafts = false;  // of the draft model that has a checkpoint of its own
};

// Whether two sources say the same of the same model, whatever they are.
inline bool SaySame(const SourceConfig& one, const SourceConfig& other) {
  return one.text == other.text && one.is_drafts == other.is_drafts;
}

// Of a checkpoint: `config` is the text of its own; a draft model with a checkpoint of its own has one beside that.
std::vector<SourceConfig> ConfigsOf(const CheckpointSource& source, std::string config);

// What differs, in words: "publisher tcp://...: rope_theta: expected 1000000.0, got 10000.0". Sources that say nothing
// differ in nothing, and neither does any if `served` is null. Throws kInvalidArgument, naming the source, if a text is
// of no model that could be compared, or if two sources say of the target's fields what differs from each other.
std::vector<std::string> ConfigChanges(const ServedConfig* served, std::span<const SourceConfig> sources);

// Throws kInvalidArgument, listing the changes, if there are any.
void RefuseConfigChanges(std::span<const std::string> changes);

}  // namespace layercast

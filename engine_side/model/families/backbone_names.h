// What checkpoints of state-space models call the parts of a decoder. Used by Mamba-2 and Nemotron-H.
#pragma once

#include "layercast/model/weights_mapper.h"

namespace layercast {

inline WeightsMapper BackboneNames() {
  return WeightsMapper({NameRule::Prefix("backbone", "model"),
                        NameRule::Prefix("model.embeddings", "model.embed_tokens"),
                        NameRule::Prefix("model.norm_f", "model.norm")});
}

}  // namespace layercast

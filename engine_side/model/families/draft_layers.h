// Draft layers (MTP), which the checkpoints of some families hold behind the decoder's last layer. Used by those
// families.
#pragma once

#include <memory>
#include <string>

#include "layercast/model/config.h"
#include "layercast/model/decoder.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/weights_mapper.h"

namespace layercast {

// Rules for an engine that does not ask for draft layers: they skip the tensors of the draft. DropDraft() skips the
// tensors below `prefix`, DropDraftLayers() those of the layers that a decoder's checkpoint holds behind its last one.
NameRule DropDraft(std::string prefix);
WeightsMapper DropDraftLayers(const ModelConfig& config, const MoeConfig& moe);

// The draft layers as a draft model: `layers.{i}` for each, i counting on from the decoder's last layer. Each holds
// enorm, hnorm, eh_proj, the layer that `make_layer` makes, and shared_head.norm. The embedding and the head are the
// target's.
DraftModel MakeDraftLayers(const LayerContext& context, const ModelConfig& config, const MoeConfig& moe,
                           const DecoderForCausalLM::MakeLayer& make_layer);

// Stand-ins for the layers that a draft model shares with its target: `embed_tokens`, and the head.
std::unique_ptr<Module> SharedEmbedding();
std::unique_ptr<Module> SharedHead(const ModelConfig& target);

}  // namespace layercast

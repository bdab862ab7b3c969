// Draft layers (MTP), which checkpoints hold behind a decoder's last layer. Used by families whose checkpoints do.
#pragma once

#include <memory>
#include <string>

#include "layercast/model/config.h"
#include "layercast/model/decoder.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/moe_config.h"
#include "layercast/model/weights_mapper.h"

namespace layercast {

// For an engine that does not ask for them: `DropDraft` for tensors below `prefix`.
NameRule DropDraft(std::string prefix);
WeightsMapper DropDraftLayers(const ModelConfig& config, const MoeConfig& moe);

// `layers.{i}` for each of them, i counted on from the decoder's last: enorm, hnorm, eh_proj, what `make_layer` makes
// of the layer itself, shared_head.norm; the embedding and the head are the target's.
DraftModel MakeDraftLayers(const LayerContext& context, const ModelConfig& config, const MoeConfig& moe,
                           const DecoderForCausalLM::MakeLayer& make_layer);

// The layers of a draft model that are the target's: `embed_tokens`, and its head.
std::unique_ptr<Module> SharedEmbedding();
std::unique_ptr<Module> SharedHead(const ModelConfig& target);

}  // namespace layercast

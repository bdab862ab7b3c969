// All that a tree is computed by, as text: its layers and their shapes, and the constants that the built-in engine's
// blocks read (engine_side/engine/cpu/blocks/make_block.cc). What two configurations mean is the same if the texts are.
#pragma once

#include <map>
#include <sstream>
#include <string>

#include "engine_side/model/config/config_rope.h"
#include "layercast/model/attention.h"
#include "layercast/model/decoder.h"
#include "layercast/model/gated_delta_net.h"
#include "layercast/model/latent_attention.h"
#include "layercast/model/mamba_mixer.h"
#include "layercast/model/mixture_of_experts.h"
#include "layercast/model/mlp.h"
#include "layercast/model/module.h"
#include "layercast/model/norm.h"

namespace layercast::testing {

inline std::string TextOf(const RotaryEmbedding& rotary) {
  if (rotary.dim == 0) return "none";
  const RopeConfig rope = EffectiveRope(rotary.rope, rotary.max_positions);
  std::ostringstream text;
  text << rope.type << " " << rope.theta << " " << rotary.dim;
  for (const auto& [name, number] : rope.numbers) text << " " << name << "=" << number;
  for (const auto& [name, list] : rope.lists) {
    text << " " << name;
    for (const double number : list) text << "," << number;
  }
  return text.str();
}

inline std::string ConstantsOf(const Module& module) {
  std::ostringstream text;
  text.precision(17);
  if (const auto* attention = dynamic_cast<const Attention*>(&module)) {
    const AttentionSpec& spec = attention->spec();
    text << spec.heads.num_heads << " " << spec.heads.num_kv_heads << " " << spec.heads.head_dim << " "
         << spec.output_gate << " " << spec.scale << " " << spec.logit_softcap << " " << spec.sliding_window << " "
         << spec.sinks << " " << TextOf(spec.rotary);
  } else if (const auto* latent = dynamic_cast<const LatentAttention*>(&module)) {
    text << latent->local_heads() << " " << latent->spec().scale << " " << latent->spec().interleaved << " "
         << TextOf(latent->spec().rotary);
  } else if (const auto* norm = dynamic_cast<const RMSNorm*>(&module)) {
    text << norm->epsilon() << " " << static_cast<int>(norm->style());
  } else if (const auto* gated = dynamic_cast<const GatedMlp*>(&module)) {
    text << gated->hidden_act();
  } else if (const auto* mlp = dynamic_cast<const Mlp*>(&module)) {
    text << mlp->hidden_act();
  } else if (const auto* experts = dynamic_cast<const MixtureOfExperts*>(&module)) {
    const Routing& routing = experts->options().routing;
    const ClampedGate gate = experts->options().clamped_gate.value_or(ClampedGate());
    text << experts->hidden_act() << " " << static_cast<int>(routing.score) << " " << routing.normalize << " "
         << routing.normalize_epsilon << " " << routing.group_best << " " << routing.top_k << " " << routing.scale
         << " " << routing.num_groups << " " << routing.top_groups << " " << gate.alpha << " " << gate.limit;
  } else if (const auto* net = dynamic_cast<const GatedDeltaNet*>(&module)) {
    text << net->local_sizes().num_key_heads << " " << net->local_sizes().num_value_heads << " "
         << net->options().norm_epsilon << " " << net->options().hidden_act;
  } else if (const auto* mixer = dynamic_cast<const MambaMixer*>(&module)) {
    text << mixer->sizes().num_heads << " " << mixer->sizes().num_groups << " " << mixer->options().norm_epsilon << " "
         << mixer->options().time_step_min << " " << mixer->options().time_step_max;
  } else if (const auto* decoder = dynamic_cast<const DecoderForCausalLM*>(&module)) {
    text << decoder->options().embedding_scale << " " << decoder->options().logit_softcap << " "
         << decoder->options().fp32_residual << " " << decoder->vocab_size();
  }
  return text.str();
}

// By the modules' paths.
inline void AddConstants(const Module& module, const std::string& path, std::map<std::string, std::string>& all) {
  std::string text = module.class_name() + " (" + ConstantsOf(module) + ") " + std::string(module.tied_to());
  for (const Parameter& parameter : module.parameters()) {
    text += ", " + parameter.spec.name + " " + ToString(parameter.spec.shape);
  }
  all[path] = text;
  for (const auto& [name, child] : module.children()) AddConstants(*child, path + "." + name, all);
}

inline std::map<std::string, std::string> TreeConstants(const Module& root) {
  std::map<std::string, std::string> all;
  AddConstants(root, "", all);
  return all;
}

}  // namespace layercast::testing

#include <array>

#include "engine_side/model/naming/code_names.h"
#include "layercast/model/weights_mapper.h"

namespace layercast {

WeightsMapper KvScaleNames() {
  std::vector<NameRule> rules;
  const auto suffix = [&](const std::string& from, const std::string& to) {
    rules.push_back(NameRule::Suffix(from, to));
  };
  suffix(std::string(kKeyValueScale), "attn." + std::string(kKeyValueScale));
  for (const std::string& scale : {std::string(kKeyScale), std::string(kValueScale)}) {
    for (const std::string projection : {"k_proj.", "v_proj.", "qkv_proj.", "qkqkv_proj."}) {
      suffix("self_attn." + projection + scale, "self_attn.attn." + scale);
    }
    for (const std::string projection : {"k_proj.", "v_proj."})
      suffix("mixer." + projection + scale, "mixer.attn." + scale);
  }
  suffix("self_attn.q.scale", "self_attn.attn.q_scale");
  suffix("self_attn.k_cache.scale", "self_attn.attn.k_scale");
  suffix("self_attn.v_cache.scale", "self_attn.attn.v_scale");
  suffix("k_proj.output_scale", "attn.k_scale");  // compressed-tensors
  suffix("v_proj.output_scale", "attn.v_scale");
  for (const std::string of : {"q", "k", "v"}) {
    suffix(of + "_scale", "attn." + of + "_scale");
    suffix(of + "_zero_point", "attn." + of + "_zero_point");
  }
  return WeightsMapper(std::move(rules));
}

}  // namespace layercast

// LoRA adapters on the trainer's side: what is published of them, alone or beside their base.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layercast/export.h"
#include "layercast/publisher.h"
#include "layercast/version.h"

namespace layercast {

// An adapter to publish. Value; what its walk refers to must live until the walks are over.
struct LAYERCAST_PUBLIC AdapterWeights {
  std::string name;    // by which engines find it in the version
  std::string config;  // the text of its adapter_config.json
  // Its factors, under PEFT's names: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". With no walk,
  // this rank of a sharded trainer holds nothing of it.
  Weights weights;
  // The version of the base that it was trained on. An engine whose base has another digest refuses the adapter. Empty:
  // not said.
  std::optional<Version> base{};

  // A folder that PEFT's save_pretrained wrote. Throws what is wrong with it.
  static AdapterWeights FromFolder(std::string name, const std::string& path);
};

// One version of adapters and, if there is one, their base. The tensors of an adapter are called "adapters/NAME/...".
// `part` is that of PublishOptions: of a sharded trainer each rank gives what it holds, and all give the same names and
// configurations; a base without a walk is one of which this rank holds nothing. Throws kInvalidArgument for a name
// that is none or comes twice; of adapters that are not in parts also what would have engines refuse them without
// asking their model (docs/adapters.md).
LAYERCAST_PUBLIC Weights Together(std::vector<AdapterWeights> adapters, std::optional<Weights> base = std::nullopt,
                                  const VersionPart& part = {});

}  // namespace layercast

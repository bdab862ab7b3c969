#include "engine_side/engine/cpu/kernels/activation.h"

#include "layercast/error.h"

namespace layercast {

Activation ActivationOf(const std::string& hidden_act) {
  if (hidden_act == "silu" || hidden_act == "swish") return Activation::kSilu;
  if (hidden_act == "gelu") return Activation::kGelu;
  if (hidden_act == "gelu_pytorch_tanh" || hidden_act == "gelu_new") return Activation::kGeluTanh;
  if (hidden_act == "relu2") return Activation::kReluSquared;
  throw Error(ErrorCode::kUnsupported, "config.json: hidden_act '" + hidden_act +
                                           "': the built-in engine computes silu, gelu, gelu_pytorch_tanh and relu2");
}

}  // namespace layercast

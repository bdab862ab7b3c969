#include "engine_side/engine/blocks/operands.h"

#include "layercast/error.h"
#include "layercast/model/norm.h"

namespace layercast {

LinearOperand Operands::Linear(const std::string& child) const {
  return {WithoutAdapter(child), context_.dtype, Adapter(child)};
}

LinearWeights Operands::WithoutAdapter(const std::string& child) const {
  return context_.weights.Linear(Child(child), PathOf(child));
}

AdapterOperand Operands::Adapter(const std::string& child, std::string_view parameter) const {
  return context_.adapters == nullptr ? AdapterOperand() : context_.adapters->Find(PathOf(child), parameter);
}

NormOperand Operands::Norm(const std::string& child) const {
  const auto* norm = dynamic_cast<const RMSNorm*>(&Child(child));
  if (norm == nullptr) {
    throw Error(ErrorCode::kUnsupported, "the built-in engine cannot compute " + PathOf(child) + " (" +
                                             Child(child).class_name() + ") as a norm");
  }
  const auto* over_ranks = dynamic_cast<const ParallelRMSNorm*>(norm);
  return {.weight = context_.weights.Find(*norm, PathOf(child)),
          .epsilon = norm->epsilon(),
          .style = norm->style(),
          .dtype = context_.dtype,
          .total_size = over_ranks == nullptr ? 0 : over_ranks->total_size()};
}

std::optional<LinearOperand> Operands::FindLinear(const std::string& child) const {
  return Has(child) ? std::optional(Linear(child)) : std::nullopt;
}

std::optional<NormOperand> Operands::FindNorm(const std::string& child) const {
  return Has(child) ? std::optional(Norm(child)) : std::nullopt;
}

}  // namespace layercast

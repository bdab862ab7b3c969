#include "engine_side/engine/blocks/adapter_operand.h"

#include <algorithm>
#include <string>

#include "layercast/error.h"

namespace layercast {

AdapterLookup::AdapterLookup(const AdapterSlots* slots, const Device& device)
    : slots_(slots), used_(slots == nullptr ? 0 : slots->terms().size()) {
  if (slots == nullptr || slots->device() == device) return;
  throw Error(ErrorCode::kUnsupported, "the adapter slots are on another device than the weights");
}

AdapterOperand AdapterLookup::Find(std::string_view layer, std::string_view parameter) {
  if (slots_ == nullptr) return {};
  const std::span<const std::size_t> terms = slots_->TermsOf(layer, parameter);
  if (terms.empty()) return {};
  for (const std::size_t term : terms) used_[term] = true;
  return {.slots = slots_, .first = terms.front(), .count = terms.size()};
}

void AdapterLookup::CheckAllUsed() const {
  const auto unused = std::ranges::find(used_, false);
  if (unused == used_.end()) return;
  const AdapterTerm& term = slots_->terms()[static_cast<std::size_t>(unused - used_.begin())];
  throw Error(ErrorCode::kUnsupported, "the built-in engine's forward pass does not know what adapters of '" +
                                           term.layer + "." + term.parameter + "' would add to");
}

}  // namespace layercast

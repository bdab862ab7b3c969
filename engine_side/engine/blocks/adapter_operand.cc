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
  const auto [first, count] = slots_->TermsOf(layer, parameter);
  if (count == 0) return {};
  std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(first), count, true);
  return {.slots = slots_, .first = first, .count = count};
}

void AdapterLookup::CheckAllUsed() const {
  const auto unused = std::ranges::find(used_, false);
  if (unused == used_.end()) return;
  const AdapterTerm& term = slots_->terms()[static_cast<std::size_t>(unused - used_.begin())];
  throw Error(ErrorCode::kUnsupported, "the built-in engine's forward pass does not know what adapters of '" +
                                           term.layer + "." + term.parameter + "' would add to");
}

}  // namespace layercast

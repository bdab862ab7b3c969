#include "src/checkpoint/torch_save/pickle_nodes.h"

#include <algorithm>
#include <bit>

#include "src/base/utf8.h"

namespace layercast {
namespace {

using Kind = PickleNode::Kind;

static_assert(sizeof(PickleNode) == 16);

bool HoldsItems(Kind kind) {
  return kind == Kind::kTuple || kind == Kind::kList || kind == Kind::kDict || kind == Kind::kCall ||
         kind == Kind::kPersistent;
}

std::uint32_t Narrow(std::size_t number) { return static_cast<std::uint32_t>(number); }  // pickles are below 4 GiB

}  // namespace

std::string_view Pickle::TextOf(std::uint32_t node) const {
  const PickleNode& it = nodes_[node];
  if (it.kind == Kind::kGlobal) return allowed_[it.range.begin];
  if (it.kind != Kind::kText) return {};
  return {reinterpret_cast<const char*>(bytes_.data()) + it.range.begin, it.range.count};
}

std::span<const std::uint32_t> Pickle::ItemsOf(std::uint32_t node) const {
  const PickleNode& it = nodes_[node];
  if (!HoldsItems(it.kind)) return {};
  return std::span(items_).subspan(it.range.begin, it.range.count);
}

std::uint32_t Pickle::AddNumber(Kind kind, std::int64_t number, std::size_t at) {
  return Add({.kind = kind, .at = Narrow(at), .number = number});
}

std::uint32_t Pickle::AddText(std::size_t begin, std::size_t count, std::size_t at) {
  return Add({.kind = Kind::kText, .at = Narrow(at), .range = {Narrow(begin), Narrow(count)}});
}

std::uint32_t Pickle::AddGlobal(std::size_t allowed, std::size_t at) {
  return Add({.kind = Kind::kGlobal, .at = Narrow(at), .range = {Narrow(allowed), 1}});
}

std::uint32_t Pickle::AddItems(Kind kind, std::span<const std::uint32_t> items, std::size_t at) {
  const std::uint32_t node = Add({.kind = kind, .at = Narrow(at), .range = {0, 0}});
  Extend(node, items);
  return node;
}

// A node's items have room for a power of two of them, and move to twice as much room when that is full. So all moves
// together cost no more than adding the items does.
void Pickle::Extend(std::uint32_t node, std::span<const std::uint32_t> items) {
  if (items.empty()) return;
  PickleNode::Range& range = nodes_[node].range;
  const std::size_t room = range.count == 0 ? 0 : std::bit_ceil(range.count);
  const std::size_t needed = range.count + items.size();
  if (needed > room) {
    const std::size_t begin = items_.size();
    items_.resize(begin + std::bit_ceil(needed));
    std::ranges::copy(std::span(items_).subspan(range.begin, range.count),
                      items_.begin() + static_cast<std::ptrdiff_t>(begin));
    range.begin = Narrow(begin);
  }
  std::ranges::copy(items, std::span(items_).subspan(std::size_t{range.begin} + range.count).begin());
  range.count = Narrow(needed);
}

std::uint32_t Pickle::Add(const PickleNode& node) {
  nodes_.push_back(node);
  return Narrow(nodes_.size() - 1);
}

std::string Describe(const Pickle& pickle, std::uint32_t node) {
  const PickleNode& it = pickle[node];
  const std::span<const std::uint32_t> items = pickle.ItemsOf(node);
  switch (it.kind) {
    case Kind::kNone: return "None";
    case Kind::kBool: return it.number != 0 ? "True" : "False";
    case Kind::kInt: return "the integer " + std::to_string(it.number);
    case Kind::kFloat: return "a float";
    case Kind::kText: return "the text " + Quote(pickle.TextOf(node));
    case Kind::kTuple: return "a tuple of " + std::to_string(items.size());
    case Kind::kList: return "a list of " + std::to_string(items.size());
    case Kind::kDict: return "a dict of " + std::to_string(items.size() / 2);
    case Kind::kGlobal: return std::string(pickle.TextOf(node));
    case Kind::kCall: return std::string(pickle.TextOf(items[0])) + "(...)";
    case Kind::kPersistent: return "a storage";
  }
  return "nothing";
}

}  // namespace layercast

// What a pickle consists of, as data: its values, and which holds which. Nodes are small, because files are not trusted
// and each byte of a pickle can make a node. Built by ReadPickle, read by ReadStateDict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// Nodes refer to each other by index, so that deep nesting needs no deep recursion. Value.
struct PickleNode {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kTuple,
    kList,
    kDict,
    kGlobal,
    kCall,
    kPersistent
  };
  struct Range {
    std::uint32_t begin;
    std::uint32_t count;
  };

  Kind kind = Kind::kNone;
  std::uint32_t at = 0;  // where in the pickle the opcode lies that made it
  union {
    std::int64_t number = 0;  // kBool, kInt
    Range range;              // of the pickle (kText), of the allowed names (kGlobal), or of all nodes' items
  };
};

// Value. Borrows the pickle's bytes and the allowed names, which outlive it.
class Pickle {
 public:
  Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed)
      : bytes_(bytes), allowed_(allowed) {}

  std::uint32_t root = 0;

  std::size_t num_bytes() const { return bytes_.size(); }
  const PickleNode& operator[](std::uint32_t node) const { return nodes_[node]; }
  // The text of a kText or kGlobal.
  std::string_view TextOf(std::uint32_t node) const;
  // What a node holds. kTuple, kList: elements. kDict: key, value, key, ... kCall: what is called, and the tuple of its
  // arguments. kPersistent: the id. Valid until the next node is added or extended.
  std::span<const std::uint32_t> ItemsOf(std::uint32_t node) const;

  // The Add functions return the new node's index.
  std::uint32_t AddNumber(PickleNode::Kind kind, std::int64_t number, std::size_t at);
  std::uint32_t AddText(std::size_t begin, std::size_t count, std::size_t at);
  std::uint32_t AddGlobal(std::size_t allowed, std::size_t at);
  std::uint32_t AddItems(PickleNode::Kind kind, std::span<const std::uint32_t> items, std::size_t at);
  // Appends items to a list or a dict.
  void Extend(std::uint32_t node, std::span<const std::uint32_t> items);

 private:
  std::uint32_t Add(const PickleNode& node);

  std::span<const std::byte> bytes_;
  std::span<const std::string_view> allowed_;
  std::deque<PickleNode> nodes_;  // a deque, because it grows without a second copy
  std::vector<std::uint32_t> items_;
};

// What a node is, for messages: "a tuple", "the text 'storage'", "torch.Size(...)".
std::string Describe(const Pickle& pickle, std::uint32_t node);

}  // namespace layercast

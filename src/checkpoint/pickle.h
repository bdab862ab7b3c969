// Reads a pickle as data. Nothing is imported, called or built: what Python would call stays a node that says so, and
// any name that is not on the caller's list ends the reading. The loader of `pt` makes tensors of what it finds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// Nodes refer to each other by index, so that no depth of nesting is a depth of calls. Values.
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
  Kind kind = Kind::kNone;
  std::uint32_t at = 0;              // byte of the pickle whose opcode made it
  std::int64_t number = 0;           // kBool, kInt
  std::string_view text;             // kText: into the pickle; kGlobal: into the list of allowed names
  std::vector<std::uint32_t> items;  // kTuple, kList: elements. kDict: key, value, key, ... kCall: what is called, its
                                     // tuple of arguments. kPersistent: the id
};

struct Pickle {
  std::vector<PickleNode> nodes;
  std::uint32_t root = 0;

  const PickleNode& operator[](std::uint32_t index) const { return nodes[index]; }
};

// `bytes` outlive what is returned, as do the names in `allowed` ("collections.OrderedDict"). `subject` opens every
// message. Throws kCorrupt on bytes that are no pickle, kUnsupported naming an opcode or a global that is not taken.
// OrderedDict() gives a kDict; attributes that are set on a dict are dropped.
Pickle ReadPickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed,
                  const std::string& subject);

// "a tuple", "the text 'storage'", "torch.Size(...)": for messages.
std::string Describe(const Pickle& pickle, std::uint32_t node);

}  // namespace layercast

// Walks JSON that nobody vouches for, without building it: headers and index files of checkpoints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace layercast {

struct JsonValue {
  enum class Kind { kBeginObject, kEndObject, kBeginArray, kEndArray, kString, kUnsigned, kOther };
  Kind kind;
  std::string_view text;     // of a string its value; else what it looks like, for messages
  std::uint64_t number = 0;  // kUnsigned only
};

class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  // `path`: the keys that lead to the value, from the top; "" stands for an array's element. Both borrow
  // and last for the call. What it throws ends the walk.
  virtual void Visit(std::span<const std::string_view> path, const JsonValue& value) = 0;
};

// Throws kCorrupt, its message opening with `subject`, unless `text` is one JSON object in UTF-8, without a byte order
// mark, that has no key twice in one object and nests at most 127 deep. (What a JSON library keeps of a repeated key is
// its own choice; two readers that choose differently load different tensors from one file.)
void WalkJsonObject(std::string_view text, const std::string& subject, JsonVisitor& visitor);

}  // namespace layercast

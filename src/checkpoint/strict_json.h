// Walks JSON that is not trusted, without building it. Used for headers and index files of checkpoints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace layercast {

struct JsonValue {
  enum class Kind { kBeginObject, kEndObject, kBeginArray, kEndArray, kString, kUnsigned, kOther };
  Kind kind;
  std::string_view text;     // a string's value; for all others what they look like, for messages
  std::uint64_t number = 0;  // kUnsigned only
};

class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  // Called for each value. `path` has the keys that lead to it, from the top; "" stands for an array's element. Both
  // arguments are valid during the call only. What it throws ends the walk.
  virtual void Visit(std::span<const std::string_view> path, const JsonValue& value) = 0;
};

// Throws kCorrupt, with a message that begins with `subject`, unless `text` is one JSON object in UTF-8, without a byte
// order mark, that has no key twice in one object and nests at most 127 deep. (JSON libraries differ in what they keep
// of a repeated key, and two such readers would load different tensors from one file.)
void WalkJsonObject(std::string_view text, const std::string& subject, JsonVisitor& visitor);

}  // namespace layercast

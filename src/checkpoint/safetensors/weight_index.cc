#include "src/checkpoint/safetensors/weight_index.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "layercast/error.h"
#include "src/base/bytes/python_json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/mapped_file.h"
#include "src/checkpoint/natural_order.h"
#include "src/checkpoint/safetensors/safetensors_header.h"
#include "src/checkpoint/strict_json.h"

namespace layercast {
namespace {

using JsonKind = JsonValue::Kind;

// Whether it is the name of a file in the index's own folder. An index must not lead a reader elsewhere.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\0", 2)) == name.npos;
}

class IndexVisitor final : public JsonVisitor {
 public:
  IndexVisitor(const std::string& file, WeightIndex& index) : file_(file), index_(index) {}

  void Visit(std::span<const std::string_view> path, const JsonValue& value) override {
    if (path.empty()) return;
    if (path.size() == 2 && path[0] == "metadata" && path[1] == "total_size" && value.kind == JsonKind::kUnsigned) {
      index_.total_size = value.number;  // other metadata, and other types of value, are ignored
    }
    if (path[0] != "weight_map") return;
    if (path.size() == 1) {
      if (value.kind != JsonKind::kBeginObject && value.kind != JsonKind::kEndObject) Fail("", "an object", value);
      has_weight_map_ = true;
      return;
    }
    if (value.kind != JsonKind::kString || !IsPlainName(value.text)) {
      Fail(": " + Quote(path[1]), "the name of a file in the same folder", value);
    }
    index_.weight_map.emplace(path[1], value.text);
  }

  bool has_weight_map() const { return has_weight_map_; }

 private:
  [[noreturn]] void Fail(const std::string& where, const std::string& expected, const JsonValue& value) const {
    throw Error(ErrorCode::kCorrupt,
                file_ + ": weight_map" + where + ": expected " + expected + ", got " + Quote(value.text));
  }

  const std::string& file_;
  WeightIndex& index_;
  bool has_weight_map_ = false;
};

}  // namespace

std::vector<std::string> WeightIndex::Files() const {
  std::set<std::string> distinct;
  for (const auto& [tensor, file] : weight_map) distinct.insert(file);
  std::vector<std::string> files(distinct.begin(), distinct.end());
  std::ranges::sort(files, NaturalLess);
  return files;
}

WeightIndex ReadWeightIndex(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string name = Quote(path.native());
  if (file.bytes().size() > kLargestSafetensorsHeader) {
    throw Error(ErrorCode::kCorrupt, name + ": expected at most " + std::to_string(kLargestSafetensorsHeader) +
                                         " bytes, got " + std::to_string(file.bytes().size()));
  }
  WeightIndex index;
  IndexVisitor visitor(name, index);
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  WalkJsonObject(WithoutBareFloats({text, file.bytes().size()}), name, visitor);
  if (!visitor.has_weight_map()) throw Error(ErrorCode::kCorrupt, name + ": expected a weight_map, got none");
  if (index.weight_map.empty()) throw Error(ErrorCode::kCorrupt, name + ": weight_map: expected tensors, got none");
  return index;
}

}  // namespace layercast

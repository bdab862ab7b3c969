#include "src/checkpoint/llama_names.h"

#include <algorithm>
#include <cstring>

#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/owned_tensor.h"

namespace layercast {
namespace {

constexpr std::string_view kDigits = "0123456789";

std::string WithNumber(std::string_view name, std::string_view number) {
  const std::size_t star = name.find('*');
  return std::string(name.substr(0, star)) + std::string(number) + std::string(name.substr(star + 1));
}

// The right side of the pair whose left side `name` is.
std::optional<std::string> Find(NamePairs pairs, std::string_view name) {
  for (const auto& [theirs, ours] : pairs) {
    if (name == theirs) return std::string(ours);
    const std::size_t star = theirs.find('*');
    if (star == theirs.npos || !name.starts_with(theirs.substr(0, star))) continue;
    const std::string_view rest = name.substr(star);
    const std::size_t digits = std::min(rest.find_first_not_of(kDigits), rest.size());
    if (digits != 0 && rest.substr(digits) == theirs.substr(star + 1)) return WithNumber(ours, rest.substr(0, digits));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> ToHuggingFace(std::string_view name, const NameTable& table) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const std::string_view part = name.substr(dot);  // ".weight"
  if (part != ".weight" && part != ".bias") return std::nullopt;
  std::string_view stem = name.substr(0, dot);
  if (const auto outside = Find(table.outside, stem)) return *outside + std::string(part);
  if (!stem.starts_with(table.layers)) return std::nullopt;
  stem.remove_prefix(table.layers.size());
  const std::size_t digits = std::min(stem.find_first_not_of(kDigits), stem.size());
  if (digits == 0 || digits == stem.size() || stem[digits] != '.') return std::nullopt;
  auto in_layer = Find(table.in_layer, stem.substr(digits + 1));
  if (!in_layer) in_layer = Find(table.mixture, stem.substr(digits + 1));
  if (!in_layer) return std::nullopt;
  return "model.layers." + std::string(stem.substr(0, digits)) + "." + *in_layer + std::string(part);
}

bool IsQueryOrKey(std::string_view hugging_face_name, std::string_view projection) {
  const std::string_view stem = hugging_face_name.substr(0, hugging_face_name.rfind('.'));
  return stem.ends_with("." + std::string(projection));
}

NamedTensor RowsInHalves(const NamedTensor& tensor, std::int64_t heads, const std::string& subject) {
  const Shape& shape = tensor.tensor.shape;
  const std::int64_t rows = shape.empty() ? 0 : shape[0];
  if (heads < 1 || rows == 0 || rows % (2 * heads) != 0) {
    throw Error(ErrorCode::kCorrupt, subject + ": tensor " + Quote(tensor.name) + ": expected rows for " +
                                         std::to_string(heads) + " heads of an even size, got " + ToString(shape));
  }
  const auto row_bytes = static_cast<std::size_t>(tensor.tensor.num_bytes() / rows);
  const std::int64_t pairs = rows / heads / 2;  // of one head
  OwnedTensor copy = MakeOwnedTensor({tensor.name, tensor.tensor.dtype, shape});
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t head = row / (2 * pairs);
    const std::int64_t half = row / pairs % 2;
    const std::int64_t source = head * 2 * pairs + 2 * (row % pairs) + half;
    std::memcpy(copy.bytes + static_cast<std::size_t>(row) * row_bytes,
                tensor.tensor.data + static_cast<std::size_t>(source) * row_bytes, row_bytes);
  }
  return std::move(copy.tensor);
}

}  // namespace layercast

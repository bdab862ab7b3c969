#include "engine_side/reload/layout/served_digest.h"

#include <algorithm>
#include <string>

#include "src/base/check.h"
#include "src/base/digest/digest.h"

namespace layercast {

namespace {

void AddLine(std::string& lines, std::string_view name, const Digest& digest) {
  lines.append(name).append(" ");
  AppendHex(digest, lines);
  lines.append("\n");
}

}  // namespace

Digest CombineDigests(std::vector<NamedDigest> tensors) {
  std::ranges::sort(tensors, {}, &NamedDigest::name);
  std::string lines;
  for (const NamedDigest& tensor : tensors) AddLine(lines, tensor.name, tensor.digest);
  return DigestOf(std::as_bytes(std::span(lines)));
}

Digest CombineDigests(const KernelLayout& layout, std::span<const Digest> digests) {
  LAYERCAST_CHECK(digests.size() == layout.tensors().size());
  std::string lines;
  for (const std::size_t i : layout.by_name()) AddLine(lines, layout.tensors()[i].spec.name, digests[i]);
  return DigestOf(std::as_bytes(std::span(lines)));
}

}  // namespace layercast

#include "engine_side/reload/served_digest.h"

#include <algorithm>
#include <string>

#include "src/base/check.h"
#include "src/base/digest.h"

namespace layercast {

Digest CombineDigests(std::vector<NamedDigest> tensors) {
  std::ranges::sort(tensors, {}, &NamedDigest::name);
  std::string lines;
  for (const NamedDigest& tensor : tensors) {
    lines += tensor.name;
    lines += ' ' + tensor.digest.ToHex() + '\n';
  }
  return DigestOf(std::as_bytes(std::span(lines)));
}

Digest CombineDigests(const KernelLayout& layout, std::span<const Digest> digests) {
  LAYERCAST_CHECK(digests.size() == layout.tensors().size());
  std::vector<NamedDigest> tensors;
  for (std::size_t i = 0; i < digests.size(); ++i) tensors.push_back({layout.tensors()[i].spec.name, digests[i]});
  return CombineDigests(std::move(tensors));
}

}  // namespace layercast

// The part of a manifest that is the same from version to version: names, dtypes, shapes, and which parts of tensors
// are here. Manifests share it, so it is checked, indexed and written once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "layercast/tensor.h"
#include "layercast/version.h"
#include "src/base/digest/digest.h"

namespace layercast {

// Value.
struct LaidOutTensor {
  TensorSpec spec;
  // If other publishers hold the rest of the tensor, the part that is here. The spec's shape is then the part's.
  std::optional<TensorPart> part{};

  bool operator==(const LaidOutTensor&) const = default;
};

// Immutable value; thread-safe.
class ManifestLayout {
 public:
  // `shared` says that other publishers have tensors of the version too, so that tensors may be parts. A part that is
  // all of its tensor is dropped. Throws kInvalidArgument on a name that is repeated but for parts that begin
  // elsewhere, and on what MANIFEST.md does not allow. Whether parts overlap is seen where those of all publishers are.
  ManifestLayout(std::vector<LaidOutTensor> tensors, bool shared);
  // Returns `known` if that is such a layout, and otherwise a new one. Throws what the constructor throws.
  static std::shared_ptr<const ManifestLayout> Of(std::vector<LaidOutTensor> tensors, bool shared,
                                                  std::shared_ptr<const ManifestLayout> known);

  const std::vector<LaidOutTensor>& tensors() const { return tensors_; }
  bool shared() const { return shared_; }
  // The index of the tensor called `name`, or -1. Of several parts of it, the one that begins where `part` does, or, if
  // that is not given, the first.
  std::int64_t Find(std::string_view name, const std::optional<TensorPart>& part = std::nullopt) const;
  // The tensors' indices, sorted by name; several parts of one tensor by where they begin.
  std::span<const std::uint32_t> by_name() const { return by_name_; }
  std::uint64_t total_bytes() const { return total_bytes_; }

  // The layout's bytes, as MANIFEST.md specifies them, and their digest.
  std::span<const std::byte> form() const { return form_; }
  const Digest& digest() const { return digest_; }
  // A digester that has taken in the form with the tensors sorted by name, from which a version's digest is computed.
  const Digester& sorted() const { return sorted_; }

 private:
  void Check();  // also adds up total_bytes_
  void CheckPart(std::size_t index, LaidOutTensor& tensor) const;
  void IndexNames();
  void CheckNeighbours(std::uint32_t first, std::uint32_t second) const;

  std::vector<LaidOutTensor> tensors_;
  const bool shared_;
  std::vector<std::uint32_t> by_name_;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::byte> form_;
  Digest digest_;
  Digester sorted_;
};

}  // namespace layercast

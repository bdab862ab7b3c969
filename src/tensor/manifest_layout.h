// What a manifest says of its tensors' form: names, dtypes, shapes, and which parts of them are here. It is the same
// from version to version, so manifests share it: it is checked, indexed and written once.
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
#include "src/base/digest.h"

namespace layercast {

struct LaidOutTensor {
  TensorSpec spec;
  // Where another publisher holds the rest of the tensor: the spec's shape is of this part alone.
  std::optional<TensorPart> part{};

  bool operator==(const LaidOutTensor&) const = default;
};

// Immutable. Thread-safe.
class ManifestLayout {
 public:
  // `shared`: other publishers have tensors of the version too, so that tensors may be parts. Throws kInvalidArgument
  // on a repeated name, and on what MANIFEST.md does not allow. A part that is all of its tensor is none.
  ManifestLayout(std::vector<LaidOutTensor> tensors, bool shared);
  // `known`, if it is not null and just this; else a new one. Throws as the constructor.
  static std::shared_ptr<const ManifestLayout> Of(std::vector<LaidOutTensor> tensors, bool shared,
                                                  std::shared_ptr<const ManifestLayout> known);

  const std::vector<LaidOutTensor>& tensors() const { return tensors_; }
  bool shared() const { return shared_; }
  // Index of the tensor called `name`, or -1.
  std::int64_t Find(std::string_view name) const;
  std::span<const std::uint32_t> by_name() const { return by_name_; }  // indices
  std::uint64_t total_bytes() const { return total_bytes_; }

  // As MANIFEST.md has it, and the digest of that.
  std::span<const std::byte> form() const { return form_; }
  const Digest& digest() const { return digest_; }
  // Has taken in the form with tensors sorted by name.
  const Digester& sorted() const { return sorted_; }

 private:
  void Check();  // and adds up total_bytes_
  void CheckPart(std::size_t index, LaidOutTensor& tensor) const;
  void IndexNames();

  std::vector<LaidOutTensor> tensors_;
  const bool shared_;
  std::vector<std::uint32_t> by_name_;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::byte> form_;
  Digest digest_;
  Digester sorted_;
};

}  // namespace layercast

// What the pickle of a torch.save file says about its tensors: the state dict, found and held to its bounds before a
// tensor exists. Read by the loader of `pt`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/tensor.h"
#include "src/checkpoint/pickle.h"

namespace layercast {

// A view into a storage, as torch strides them. Value.
struct TorchTensor {
  TensorSpec spec;
  std::string storage;                // the key of its record: "data/<key>"
  std::uint64_t begin = 0;            // of its first element in the storage, in bytes
  std::vector<std::int64_t> strides;  // in elements, none negative

  bool IsContiguous() const;
};

// The names that a state dict's pickle may mention.
std::span<const std::string_view> TorchGlobals();

// The tensors of the dict that the pickle is, or of the one dict under "model", "state_dict" or "module" where its own
// values are no tensors; in its order. `storage_bytes`: how large the storage of that key is; nothing: there is none.
// Throws kCorrupt naming tensor, byte, expected and got, also where the memo makes more of the
// pickle than its bytes; kUnsupported for what is understood and not read.
std::vector<TorchTensor> ReadStateDict(
    const Pickle& pickle, const std::function<std::optional<std::uint64_t>(const std::string&)>& storage_bytes,
    const std::string& subject);

// The tensor's elements, packed row-major, to `destination` (spec.num_bytes()).
void CopyStrided(const TorchTensor& tensor, std::span<const std::byte> storage, std::byte* destination);

}  // namespace layercast

// What the pickle of a torch.save file says about its tensors: finds the state dict, and checks it against its bounds
// before any tensor is made. Used by the loader of `pt`.
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
#include "src/checkpoint/torch_save/pickle.h"

namespace layercast {

// A view into a storage, as torch strides them. Value.
struct TorchTensor {
  TensorSpec spec;
  std::string storage;                // the key of its record: "data/<key>"
  std::uint64_t begin = 0;            // where in the storage its first element lies, in bytes
  std::vector<std::int64_t> strides;  // in elements, none negative

  bool IsContiguous() const;
};

// The names that a state dict's pickle may mention.
std::span<const std::string_view> TorchGlobals();

// The tensors of the dict that the pickle is, in its order. If that dict's own values are not tensors, those of the one
// dict under "model", "state_dict" or "module". `storage_bytes` gives the size of the storage with that key, or nullopt
// if there is none. Throws kCorrupt, naming tensor, byte, expected and got, also if the memo makes far more of the
// pickle than its bytes; kUnsupported for what is understood but not read.
std::vector<TorchTensor> ReadStateDict(
    const Pickle& pickle, const std::function<std::optional<std::uint64_t>(const std::string&)>& storage_bytes,
    const std::string& subject);

// Copies the tensor's elements, packed row-major, to `destination`, which has room for spec.num_bytes().
void CopyStrided(const TorchTensor& tensor, std::span<const std::byte> storage, std::byte* destination);

}  // namespace layercast

#include "src/checkpoint/loader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/owned_tensor.h"

namespace layercast {
namespace {

// A clone without git-lfs holds small text files where the weights should be.
bool IsLfsPointer(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.starts_with("version https://git-lfs.github.com/spec/");
}

bool IsAligned(const TensorView& tensor) {
  const std::size_t alignment = static_cast<std::size_t>(std::max(BitsPerElement(tensor.dtype) / 8, 1));
  return reinterpret_cast<std::uintptr_t>(tensor.data) % alignment == 0;
}

NamedTensor CopyAligned(const NamedTensor& named) {
  OwnedTensor copy = MakeOwnedTensor({named.name, named.tensor.dtype, named.tensor.shape});
  const auto bytes = static_cast<std::size_t>(named.tensor.num_bytes());
  if (bytes != 0) std::memcpy(copy.bytes, named.tensor.data, bytes);
  return std::move(copy.tensor);
}

}  // namespace

TensorFile::TensorFile(const std::filesystem::path& path) : path_(path), mapping_(path) {
  if (!IsLfsPointer(mapping_.bytes())) return;
  throw Error(ErrorCode::kNotFound, Quote(path.native()) +
                                        ": expected weights, got a pointer of git-lfs: they were not downloaded "
                                        "(`git lfs pull` does that)");
}

NamedTensor ReadAligned(const std::shared_ptr<const TensorFile>& file, std::size_t index) {
  NamedTensor named = file->Read(index);
  if (named.owner == nullptr) {
    file->mapping().Populate({named.tensor.data, static_cast<std::size_t>(named.tensor.num_bytes())});
    named.owner = file;
  }
  return IsAligned(named.tensor) ? named : CopyAligned(named);
}

}  // namespace layercast

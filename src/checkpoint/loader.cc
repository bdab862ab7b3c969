#include "src/checkpoint/loader.h"

#include <string_view>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

// A clone without git-lfs holds small text files where the weights should be.
bool IsLfsPointer(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.starts_with("version https://git-lfs.github.com/spec/");
}

}  // namespace

TensorFile::TensorFile(const std::filesystem::path& path) : path_(path), mapping_(path) {
  if (!IsLfsPointer(mapping_.bytes())) return;
  throw Error(ErrorCode::kNotFound, Quote(path.native()) +
                                        ": expected weights, got a pointer of git-lfs: they were not downloaded "
                                        "(`git lfs pull` does that)");
}

}  // namespace layercast

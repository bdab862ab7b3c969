#include "src/checkpoint/safetensors_file.h"

#include "src/base/utf8.h"

namespace layercast {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), header_(ParseSafetensors(file_.bytes(), Quote(path.native()))) {}

TensorView SafetensorsFile::View(std::size_t index) const {
  const SafetensorsHeader::Stored& tensor = header_.tensors.at(index);
  return {.dtype = tensor.spec.dtype,
          .shape = tensor.spec.shape,
          .data = file_.bytes().data() + tensor.begin,
          .device = {}};
}

}  // namespace layercast

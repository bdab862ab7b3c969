#include "src/checkpoint/safetensors/safetensors_file.h"

#include "src/base/utf8.h"

namespace layercast {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : TensorFile(path), header_(ParseSafetensors(mapping().bytes(), Quote(path.native()))) {}

NamedTensor SafetensorsFile::Read(std::size_t index) const {
  const SafetensorsHeader::Stored& stored = header_.tensors.at(index);
  return {.name = stored.spec.name,
          .tensor = {.dtype = stored.spec.dtype,
                     .shape = stored.spec.shape,
                     .data = mapping().bytes().data() + stored.begin,
                     .device = {}},
          .owner = nullptr};
}

}  // namespace layercast

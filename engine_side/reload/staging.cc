#include "engine_side/reload/staging.h"

#include <algorithm>
#include <vector>

#include "src/base/digest.h"

namespace layercast {

Digest Staging::DigestOfAll(const KernelLayout& layout) const {
  std::vector<const KernelTensor*> by_name;
  for (const KernelTensor& tensor : layout.tensors()) by_name.push_back(&tensor);
  std::sort(by_name.begin(), by_name.end(),
            [](const KernelTensor* a, const KernelTensor* b) { return a->spec.name < b->spec.name; });
  Digester digester;
  for (const KernelTensor* tensor : by_name) {
    digester.Update(std::as_bytes(std::span(tensor->spec.name)));
    digester.Update(BytesOf(*tensor));
  }
  return digester.Finish();
}

}  // namespace layercast

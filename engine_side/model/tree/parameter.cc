#include "layercast/model/parameter.h"

namespace layercast {

void Parameter::MaterializeOn(MemoryResource& memory) {
  storage = Buffer(memory, static_cast<std::size_t>(spec.num_bytes()));
}

}  // namespace layercast

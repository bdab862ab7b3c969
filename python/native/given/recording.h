// What was recorded of another program's loader (layercast.Recording), as the core's. Needs the GIL.
#pragma once

#include "layercast/recorded_model.h"
#include "python/native/native.h"

namespace layercast::python {

// `recorded` has "sources" [(name, dtype, shape)], "parameters" [(name, dtype, shape, quantize, zeros)] and "copies"
// [(source, parameter, from, to, transposed)]; a box is (begin, extent). Throws kInvalidArgument on anything else.
Recording RecordingFrom(const nb::dict& recorded);

}  // namespace layercast::python

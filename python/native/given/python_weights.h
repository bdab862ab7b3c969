// What a trainer publishes, walked in Python: tensors that are all there, pieces that are made while they are iterated,
// and iterators. All of it needs the GIL; walks take it themselves.
#pragma once

#include "layercast/publisher.h"
#include "python/native/native.h"

namespace layercast::python {

// `pieces` is a list of (name, tensor) and (name, tensor, part).
Weights WeightsOfList(const nb::list& pieces, bool borrowed, bool stay);

// What `pieces` will give: (name, torch's dtype, shape, part) of each. Each walk iterates `pieces` anew, on its own
// thread.
Weights WeightsOfPieces(const nb::object& pieces, const nb::list& specs, bool borrowed, bool stay);

// Walked once, by the thread that publishes.
Weights WeightsOfIterator(nb::object iterator, bool stay);

}  // namespace layercast::python

// Python's tensors as Layercast's: torch's, numpy's (ml_dtypes' too), and whatever else speaks DLPack. Nothing is
// copied where memory is contiguous and on the host. All of it needs the GIL.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/captured_buffer.h"
#include "layercast/tensor.h"
#include "layercast/weights_iterator.h"
#include "python/native/native.h"

namespace layercast::python {

// Python objects that C++ keeps alive from any thread. When it is dropped they are, with the GIL; they are leaked if
// the interpreter has ended.
using Kept = std::shared_ptr<const void>;
Kept Keep(nb::object object);

// The tensor's values, row-major, on the host or, with `stay`, on its device. Its owner keeps the Python object (or
// the copy that was made of it). Throws kInvalidArgument or kUnsupported, naming the tensor, if it has no values of its
// own (on meta, freed, sparse, lazily conjugated or negated), or no dtype that Layercast has.
NamedTensor TensorFrom(std::string name, nb::handle tensor, bool stay = false);

// One element of what users iterate over: (name, tensor), (name, tensor, (whole shape, offsets)), or a trainer's piece
// (name, tensor, whole shape, offsets).
NamedTensor NamedTensorFrom(nb::handle element, bool stay = false);

// The tensor as a captured buffer, with its strides. Throws as TensorFrom, and kInvalidArgument on read-only memory.
CapturedBuffer BufferFrom(const std::string& name, nb::handle tensor);

// Walks a Python iterator of what NamedTensorFrom takes. `Next` takes the GIL, and throws what the iterator raises.
std::unique_ptr<WeightsIterator> IteratorFrom(nb::object iterator, bool stay = false);

// The tensor's bytes as a Python object with the buffer protocol, read-only. It keeps the tensor's owner.
nb::object BytesOf(const NamedTensor& tensor);

// As layercast.TensorSpec and layercast.Tensor are made of: (name, dtype, shape), and the same with the bytes.
nb::tuple TupleOf(const TensorSpec& spec);
nb::tuple TupleOf(const NamedTensor& tensor);
template <typename Range>
nb::list ListOf(const Range& specs_or_tensors) {
  nb::list list;
  for (const auto& each : specs_or_tensors) list.append(TupleOf(each));
  return list;
}

}  // namespace layercast::python

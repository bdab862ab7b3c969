// Checkpoints on disk, lazily.
#include "src/checkpoint/formats/checkpoint.h"

#include <optional>

#include "python/native/native.h"
#include "python/native/python_tensors.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

NamedTensor Read(const Checkpoint& checkpoint, const std::string& name) {
  const GilReleased released;
  return checkpoint.Tensor(name);
}

// Resource; one thread only.
struct Walk {
  std::unique_ptr<WeightsIterator> weights;
};

nb::object Next(Walk& walk) {
  std::optional<NamedTensor> named;
  {
    const GilReleased released;
    named = walk.weights->Next();
  }
  if (!named) throw nb::stop_iteration();
  return TupleOf(*named);
}

}  // namespace

void BindCheckpoint(nb::module_& module) {
  nb::class_<Walk>(module, "CheckpointWalk")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", Next);
  nb::class_<Checkpoint>(module, "Checkpoint")
      .def("__init__",
           [](Checkpoint* self, std::string path, std::string load_format) {
             const GilReleased released;
             new (self) Checkpoint(Checkpoint::Open({.path = std::move(path), .load_format = std::move(load_format)}));
           })
      .def_prop_ro("total_bytes", &Checkpoint::total_bytes)
      .def_prop_ro("config", &Checkpoint::config)
      .def("specs", [](const Checkpoint& self) { return ListOf(self.specs()); })
      .def("tensor", [](const Checkpoint& self, const std::string& name) { return TupleOf(Read(self, name)); })
      .def("walk", [](const Checkpoint& self) { return Walk{self.Weights()}; });
}

}  // namespace layercast::python

// What the parts of the extension `layercast._native` share: nanobind, and what each part adds to the module. Users
// see none of it: python/layercast gives it names, defaults and docstrings.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace layercast::python {

namespace nb = nanobind;

void BindErrors(nb::module_& module);
void BindVersion(nb::module_& module);
void BindVersions(nb::module_& module);
void BindTensors(nb::module_& module);
void BindPublisher(nb::module_& module);
void BindReceiver(nb::module_& module);
void BindAdapters(nb::module_& module);
void BindController(nb::module_& module);
void BindCheckpoint(nb::module_& module);
void BindPublished(nb::module_& module);
void BindQuantize(nb::module_& module);
void BindClosing(nb::module_& module);
void BindLogs(nb::module_& module);

}  // namespace layercast::python

// layercast::Error as the exceptions of layercast.errors.
#include <exception>

#include "layercast/error.h"
#include "python/native/native.h"

namespace layercast::python {
namespace {

void Translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object type =
        nb::module_::import_("layercast.errors").attr("of_code")(std::string(ErrorCodeName(error.code())));
    PyErr_SetObject(type.ptr(), nb::str(error.what()).ptr());
  }
}

}  // namespace

void BindErrors(nb::module_& /*module*/) { nb::register_exception_translator(Translate); }

}  // namespace layercast::python

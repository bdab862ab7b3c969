// The extension `layercast._native`.
#include "python/native/native.h"

NB_MODULE(_native, module) {
  using namespace layercast::python;
  nanobind::set_leak_warnings(false);  // what is alive when the interpreter ends is closed by close_all, and not freed
  module.attr("__version__") = LAYERCAST_VERSION;
  BindErrors(module);
  BindVersion(module);
  BindTensors(module);
  BindLogs(module);
  BindCheckpoint(module);
  BindPublished(module);
  BindQuantize(module);
  BindClosing(module);
  BindPublisher(module);
  BindVersions(module);
  BindReceiver(module);
  BindAdapters(module);
  BindController(module);
}

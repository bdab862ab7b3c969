#include "python/native/owned.h"

namespace layercast::python {
namespace {

// All that are alive, guarded by the GIL. Never freed: it is asked for when the process ends.
std::set<Closable*>& Alive() {
  static auto* alive = new std::set<Closable*>();
  return *alive;
}

}  // namespace

Closable::Closable() { Alive().insert(this); }
Closable::~Closable() { Alive().erase(this); }

void BindClosing(nb::module_& module) {
  // Threads that wait in a call would be lost in it when the interpreter ends.
  module.def("close_all", [] {
    for (Closable* closable : std::set(Alive())) {
      if (Alive().contains(closable)) closable->GiveUp();
    }
    while (!Alive().empty()) {
      Closable* closable = *Alive().begin();
      Alive().erase(closable);
      closable->Close();
    }
    EndOfPython();
  });
}

}  // namespace layercast::python

// What publishers keep: lists of versions, and publishers of other processes.
#include <nanobind/stl/map.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "layercast/publisher.h"
#include "layercast/store/store.h"
#include "python/native/options.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

// A publisher elsewhere is waited for on another thread, so that the user may interrupt the wait.
template <typename Ask>
auto Asked(const RemotePublisher& publisher, const Ask& ask) {
  return RunInterruptibly([publisher, ask] { return ask(publisher); }, [] {});
}

// Its files may be slow, so the GIL is given up.
void BindStore(nb::module_& module) {
  nb::class_<Store>(module, "Store")
      .def(nb::init<std::string>(), nb::arg("path"))
      .def("versions", &Store::Versions, nb::call_guard<GilReleased>())
      .def("pin", &Store::Pin, nb::arg("version"), nb::arg("pinned"), nb::call_guard<GilReleased>())
      .def("evict", &Store::Evict, nb::arg("version"), nb::call_guard<GilReleased>())
      .def("check", [](const Store& self) {
        std::map<std::string, std::vector<std::string>> wrong;
        const GilReleased released;
        for (CheckedVersion& checked : self.Check()) wrong[checked.version] = std::move(checked.wrong);
        return wrong;
      });
}

}  // namespace

void BindVersions(nb::module_& module) {
  nb::class_<KeptVersion>(module, "KeptVersion")
      .def_ro("version", &KeptVersion::version)
      .def_ro("run", &KeptVersion::run)
      .def_prop_ro("stream", [](const KeptVersion& kept) { return kept.mode == PublishMode::kStream; })
      .def_ro("bytes", &KeptVersion::bytes)
      .def_ro("added_bytes", &KeptVersion::added_bytes)
      .def_ro("readers", &KeptVersion::readers)
      .def_prop_ro("published",
                   [](const KeptVersion& kept) {
                     return std::chrono::duration<double>(kept.published.time_since_epoch()).count();
                   })
      .def_ro("pinned", &KeptVersion::pinned)
      .def_ro("evicted", &KeptVersion::evicted)
      .def_ro("shadowed", &KeptVersion::shadowed)
      .def_prop_ro("stored", [](const KeptVersion& kept) { return kept.durability == Durability::kStored; })
      .def("__repr__", [](const KeptVersion& kept) { return "KeptVersion(" + kept.version.ToString() + ")"; });
  nb::class_<VersionList>(module, "VersionList")
      .def_ro("retained_versions", &VersionList::retained_versions)
      .def_ro("retained_bytes", &VersionList::retained_bytes)
      .def_ro("memory_bytes", &VersionList::memory_bytes)
      .def_ro("versions", &VersionList::versions)
      .def("named", [](const VersionList& list, const std::string& text) { return list.Named(text); }, nb::arg("text"));
  BindStore(module);
  nb::class_<RemotePublisher>(module, "RemotePublisher")
      .def(
          "__init__",
          [](RemotePublisher* self, std::string endpoint, double timeout, const nb::kwargs& options) {
            new (self) RemotePublisher(std::move(endpoint), KeysFrom(options), FromSeconds("timeout", timeout));
          },
          nb::arg("endpoint"), nb::arg("timeout"), nb::arg("options"))
      .def("versions",
           [](const RemotePublisher& self) {
             return Asked(self, [](const RemotePublisher& publisher) { return publisher.Versions(); });
           })
      .def(
          "pin",
          [](const RemotePublisher& self, const Version& version, bool pinned) {
            return Asked(self, [=](const RemotePublisher& publisher) { return publisher.Pin(version, pinned); });
          },
          nb::arg("version"), nb::arg("pinned"))
      .def(
          "evict",
          [](const RemotePublisher& self, const Version& version) {
            return Asked(self, [=](const RemotePublisher& publisher) { return publisher.Evict(version); });
          },
          nb::arg("version"))
      .def(
          "publish_folder",
          [](const RemotePublisher& self, const std::string& path, const std::string& load_format,
             const std::string& lineage, std::uint64_t step, const std::string& run) {
            const CheckpointSource folder{.path = path, .load_format = load_format};
            const PublishOptions options{
                .lineage = lineage, .step = step, .run = run.empty() ? std::nullopt : std::optional(run)};
            return Asked(self,
                         [=](const RemotePublisher& publisher) { return publisher.PublishFolder(folder, options); });
          },
          nb::arg("path"), nb::arg("load_format"), nb::arg("lineage"), nb::arg("step"), nb::arg("run"));
}

}  // namespace layercast::python

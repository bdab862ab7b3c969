// What a version is called.
#include "layercast/version.h"

#include "layercast/error.h"
#include "python/native/native.h"

namespace layercast::python {
namespace {

Digest DigestFrom(const std::string& hex) {
  if (hex.empty()) return {};
  if (const std::optional<Digest> digest = Digest::FromHex(hex)) return *digest;
  throw Error(ErrorCode::kInvalidArgument, "a digest has 32 hexadecimal digits, got '" + hex + "'");
}

}  // namespace

void BindVersion(nb::module_& module) {
  nb::class_<Version>(module, "Version")
      .def(
          "__init__",
          [](Version* version, std::string lineage, std::uint64_t step, const std::string& digest) {
            new (version) Version{.lineage = std::move(lineage), .step = step, .digest = DigestFrom(digest)};
          },
          nb::arg("lineage"), nb::arg("step"), nb::arg("digest") = "")
      .def_ro("lineage", &Version::lineage)
      .def_ro("step", &Version::step)
      .def_prop_ro("digest", [](const Version& version) { return version.digest ? version.digest.ToHex() : ""; })
      .def("__str__", &Version::ToString)
      .def("__repr__",
           [](const Version& version) {
             return "Version(lineage='" + version.lineage + "', step=" + std::to_string(version.step) + ", digest='" +
                    (version.digest ? version.digest.ToHex() : "") + "')";
           })
      .def(
          "__eq__",
          [](const Version& one, nb::handle other) {
            return nb::isinstance<Version>(other) && one == nb::cast<const Version&>(other);
          },
          nb::arg("other").none())
      .def("__reduce__",
           [](nb::handle version) {
             return nb::make_tuple(
                 version.type(), nb::make_tuple(version.attr("lineage"), version.attr("step"), version.attr("digest")));
           })
      .def("__hash__", [](const Version& version) {
        return nb::hash(nb::make_tuple(version.lineage, version.step, version.digest.high, version.digest.low));
      });
}

}  // namespace layercast::python

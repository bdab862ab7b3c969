// What `layercast doctor` prints: a table, and sentences under it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/advice.h"
#include "cli/doctor/machine.h"
#include "cli/doctor/measurement.h"
#include "cli/doctor/seen_peers.h"
#include "src/control/json_forms.h"
#include "src/transport/all/library_versions.h"

namespace layercast::cli {

// All that was looked at. Value.
struct Findings {
  Machine machine;
  std::string instruction_set;
  std::vector<LibraryVersion> libraries;
  Measurement measured{};
  std::optional<PublisherLook> publisher{};
  std::optional<EngineLook> engine{};
  std::vector<Advice> advice{};
};

// docs/cli.md has its fields.
Json FindingsJson(const Findings& findings);
// Without what makes a sync fail, which is told as an error.
std::string FindingsText(const Findings& findings);

}  // namespace layercast::cli

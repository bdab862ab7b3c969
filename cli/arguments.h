// Flags that several subcommands share, and the values that they carry.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/output.h"
#include "layercast/version.h"
#include "src/base/deadline.h"

namespace layercast::cli {

// Of a subcommand that asks one engine, or a publisher: --timeout SECONDS, the deadline of the whole command.
class Timeout {
 public:
  void Declare(CLI::App& app);
  std::chrono::milliseconds duration() const;
  Deadline deadline() const { return Deadline::After(duration()); }

 private:
  double seconds_ = 300;
};

// "run-17@42". Throws UsageError.
Version ParseVersion(const std::string& text);
// "run-17@42:0123456789abcdef" of a version's JSON form.
std::string VersionText(const Json& version);
// Of a folder that another process opens: its working directory is not ours.
std::string AbsolutePath(const std::string& path);

}  // namespace layercast::cli

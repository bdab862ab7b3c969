// --keys, --secret and --insecure, which every subcommand has that connects or listens; --sign of who publishes,
// --trust of who takes versions.
#pragma once

#include <CLI/CLI.hpp>

#include "layercast/keys/key_options.h"
#include "src/net/keys/keys.h"

namespace layercast::cli {

// Value.
class KeyFlags {
 public:
  void Declare(CLI::App& app);
  void DeclareSign(CLI::App& app);
  void DeclareTrust(CLI::App& app);
  // The paths are absolute, because the processes of an engine's ranks open them too.
  KeyOptions options() const;
  // Throws what Keys::From throws.
  Keys keys() const { return Keys::From(options()); }

 private:
  KeyOptions options_;
};

}  // namespace layercast::cli

#include "cli/arguments/key_flags.h"

#include "cli/arguments/arguments.h"

namespace layercast::cli {

void KeyFlags::Declare(CLI::App& app) {
  CLI::Option* const folder = app.add_option("--keys", options_.folder,
                                             "A folder of `layercast keygen`: who this process is, and whom it admits; "
                                             "by default LAYERCAST_KEYS");
  CLI::Option* const secret =
      app.add_option("--secret", options_.secret,
                     "Instead of it a file that all processes of a job have; by default LAYERCAST_SECRET")
          ->excludes(folder);
  app.add_flag("--insecure", options_.insecure,
               "No keys, also beyond loopback: whoever reaches an address may do everything")
      ->excludes(folder)
      ->excludes(secret);
  app.add_flag_callback("--allow-remote",
                        [] {
                          throw CLI::ValidationError(
                              "--allow-remote",
                              "is gone: an address beyond loopback wants keys (--keys or --secret, docs/security.md), "
                              "or --insecure, which does what --allow-remote did");
                        })
      ->group("");
}

void KeyFlags::DeclareSign(CLI::App& app) {
  app.add_option("--sign", options_.sign,
                 "Signs versions by this key of `layercast keygen --sign`, for engines that ask for it; by default "
                 "LAYERCAST_SIGN");
}

void KeyFlags::DeclareTrust(CLI::App& app) {
  app.add_option("--trust", options_.trust,
                 "Takes versions alone that are signed by a key of this list, whose lines `layercast keygen` makes; by "
                 "default LAYERCAST_TRUST");
  app.add_flag("--allow-unsigned", options_.allow_unsigned,
               "Where some are trusted: takes weights also from paths and from other engines, which nobody signs");
}

KeyOptions KeyFlags::options() const {
  KeyOptions options = options_;
  if (!options.folder.empty()) options.folder = AbsolutePath(options.folder);
  if (!options.secret.empty()) options.secret = AbsolutePath(options.secret);
  if (!options.sign.empty()) options.sign = AbsolutePath(options.sign);
  if (!options.trust.empty()) options.trust = AbsolutePath(options.trust);
  return options;
}

}  // namespace layercast::cli

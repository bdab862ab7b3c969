// Flags that several subcommands share, and the values that they carry.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "layercast/checkpoint_source.h"
#include "layercast/model/held_scales.h"
#include "layercast/parallel.h"
#include "layercast/version.h"
#include "src/base/deadline.h"

namespace layercast::cli {

// What an option of a whole number is checked by. (CLI11's own checks spell the bounds of the type out.)
CLI::Validator WholeNumber(std::uint64_t least);
// Of a number that is finite and at least zero.
CLI::Validator NumberFromZero();
// An option that lists names or whole numbers with commas between, and may be given several times.
template <typename Item>
CLI::Option* DeclareList(CLI::App& app, const std::string& flag, std::vector<Item>& items, const std::string& help);
// Every option's: an empty value is a variable of a script that is not set, and would count as an option that was left
// out.
CLI::Validator NotEmpty();

// Of a subcommand that asks one engine, or a publisher: --timeout SECONDS, the deadline of the whole command.
class Timeout {
 public:
  void Declare(CLI::App& app);
  std::chrono::milliseconds duration() const;
  Deadline deadline() const { return Deadline::After(duration()); }

 private:
  double seconds_ = 300;
};

// Of a subcommand that reads a checkpoint: --load-format NAME, --secondary-weights PREFIX=PATH.
class CheckpointFlags {
 public:
  // `path`: the option that says where the checkpoint lies, without which these mean nothing; null: it is always there.
  void Declare(CLI::App& app, CLI::Option* path = nullptr);
  const std::string& load_format() const { return load_format_; }
  // The paths are absolute: the process that opens them need not be this one. Throws UsageError.
  CheckpointSource At(const std::string& path) const;

 private:
  std::string load_format_ = "auto";
  std::vector<std::string> secondary_;
};

// {"weights_path", "load_format", "secondary_weights"}: as engines take it.
Json CheckpointJson(const CheckpointSource& source);

// "run-17@42". Throws UsageError.
Version ParseVersion(const std::string& text);
// "run-17@42:0123456789abcdef" of a version's JSON form.
std::string VersionText(const Json& version);
// "3.9 GB/s", or "-" of one that was not measured.
std::string RateText(const Json& gb_per_s);
// Of a folder that another process opens: its working directory is not ours.
std::string AbsolutePath(const std::string& path);
// --input-scales, --kv-cache-scales.
void DeclareScales(CLI::App& app, HeldScales& scales);
// --expert-parallel, --expert-placement NAME.
void DeclareExperts(CLI::App& app, bool& parallel, ExpertPlacement& placement);
// --pp-layers N,N,...: of each pipeline stage.
void DeclareStageLayers(CLI::App& app, std::vector<std::int64_t>& layers);
// --weight-rules FILE.
void DeclareWeightRules(CLI::App& app, std::string& path);
// What --draft names: the draft layers of the checkpoint, or a folder, which is made absolute.
std::string AbsoluteDraft(const std::string& draft);

}  // namespace layercast::cli

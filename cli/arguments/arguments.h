// Flags that several subcommands share, and the values that they carry.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/terminal/output.h"
#include "layercast/checkpoint_source.h"
#include "layercast/model/held_scales.h"
#include "layercast/parallel.h"
#include "layercast/version.h"
#include "src/base/deadline.h"

namespace layercast::cli {

// Checks an option that takes a whole number. (The messages of CLI11's own checks spell out the bounds of the type.)
CLI::Validator WholeNumber(std::uint64_t least);
// Checks an option that takes a finite number.
CLI::Validator Number(double least, std::optional<double> most = std::nullopt);
// Checks an option by a function that throws an Error if it does not take the value.
CLI::Validator TakenBy(std::function<void(const std::string&)> take, std::string description);
// Checks an option that takes one of these words, or of others, which --help does not show.
CLI::Validator OneOf(std::vector<std::string> words, std::vector<std::string> not_shown = {});
// Checks an option that takes an endpoint.
CLI::Validator Endpoint();
// Checks an option that names a data channel of any build: an engine may have others than this program. --help lists
// those of this build that reach other processes.
CLI::Validator Channel();
// Checks an option that lists values with commas between, each by `item`.
CLI::Validator EachOf(const CLI::Validator& item);
// Declares an option that lists names or whole numbers with commas between, and may be given several times.
template <typename Item>
CLI::Option* DeclareList(CLI::App& app, const std::string& flag, std::vector<Item>& items, const std::string& help);
// Checks every option. An empty value is mostly a script's variable that is not set, and would otherwise count as an
// option that was left out. One that begins with "--" is mostly the next option: the value itself was left out.
CLI::Validator GivenValue();

// --timeout SECONDS of a subcommand that asks one engine or publisher: the deadline of the whole command. Value.
class Timeout {
 public:
  void Declare(CLI::App& app);
  std::chrono::milliseconds duration() const;
  Deadline deadline() const { return Deadline::After(duration()); }

 private:
  double seconds_ = 300;
};

// --model DIR, which may also stand alone, and --load-format NAME and --secondary-weights PREFIX=PATH of a subcommand
// that reads a checkpoint. Value.
class CheckpointFlags {
 public:
  // Returns the option of the folder. If it is not required, the others need it.
  CLI::Option* Declare(CLI::App& app, const std::string& help, bool required = true);
  const std::string& path() const { return path_; }
  const std::string& load_format() const { return load_format_; }
  // The source's paths are absolute, because another process may open them. Throws UsageError.
  CheckpointSource Source() const;

 private:
  std::string path_;
  std::string load_format_ = "auto";
  std::vector<std::string> secondary_;
};

// The source as engines take it: {"weights_path", "load_format", "secondary_weights"}.
Json CheckpointJson(const CheckpointSource& source);

// Refuses channels none of which leaves its process: no subcommand has a publisher and an engine in one. Throws
// UsageError.
void ExpectBetweenProcesses(const std::vector<std::string>& channels);
// "a,b", as one value that lists them.
std::string WithCommas(const std::vector<std::string>& items);
// Parses "run-17@42", the value of that flag. Throws UsageError.
Version ParseVersion(const std::string& text, const std::string& flag = "--version");
// Parses "run-17@42:DIGEST" with all of the digest's digits, the value of that flag. Throws UsageError.
Version ParseWholeVersion(const std::string& text, const std::string& flag);
// Parses each "NAME=DIR": adapters, by name. Throws UsageError for one that is not so, or a name that comes twice.
std::map<std::string, std::string> ParseAdapters(const std::vector<std::string>& texts);
// "run-17@42:0123456789abcdef", from a version's JSON form.
std::string VersionText(const Json& version);
// "3.9 GB/s", or "-" for a rate that was not measured.
std::string RateText(const Json& gb_per_s);
// For a path that another process opens, whose working directory may be another.
std::string AbsolutePath(const std::string& path);
// Declares --input-scales and --kv-cache-scales.
void DeclareScales(CLI::App& app, HeldScales& scales);
// Declares --expert-parallel and --expert-placement NAME.
void DeclareExperts(CLI::App& app, bool& parallel, ExpertPlacement& placement);
// Declares --pp-layers N,N,...: how many layers each pipeline stage has.
void DeclareStageLayers(CLI::App& app, std::vector<std::int64_t>& layers);
// Declares --weight-rules FILE.
void DeclareWeightRules(CLI::App& app, std::string& path);
// Declares --metrics-bind HOST:PORT and --metrics-open.
void DeclareMetrics(CLI::App& app, std::string& bind, bool& open);
// ", metrics at http://127.0.0.1:9400/metrics", or nothing for null.
std::string MetricsText(const Json& address);
// The value of --draft, which names the checkpoint's own draft layers, or a folder, whose path is made absolute.
std::string AbsoluteDraft(const std::string& draft);

}  // namespace layercast::cli

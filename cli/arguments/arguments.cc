#include "cli/arguments/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <utility>

#include "cli/arguments/nearest.h"
#include "cli/arguments/subcommand.h"
#include "engine_side/model/registry/named_draft.h"
#include "layercast/error.h"
#include "src/base/bytes/comma_list.h"
#include "src/base/utf8.h"
#include "src/checkpoint/formats/load_format.h"
#include "src/net/zmq/endpoint.h"
#include "src/session/choose/channel_chooser.h"
#include "src/transport/all/channel_names.h"

namespace layercast::cli {
namespace {

std::string DecimalText(double number) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), number, std::chars_format::fixed).ptr};
}

std::string ExpectedList(const std::string& of, const std::string& got) {
  return "expected " + of + " with commas between, got '" + got + "'";
}

}  // namespace

CLI::Validator WholeNumber(std::uint64_t least) {
  const auto check = [least](const std::string& text) -> std::string {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number >= least) return {};
    return "expected a whole number from " + std::to_string(least) + ", got '" + text + "'";
  };
  return {check, "from " + std::to_string(least)};
}

CLI::Validator Number(double least, std::optional<double> most) {
  const std::string bounds = "from " + DecimalText(least) + (most ? " to " + DecimalText(*most) : "");
  const auto check = [least, most, bounds](const std::string& text) -> std::string {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && std::isfinite(number) && number >= least && number <= most.value_or(number)) return {};
    return "expected a number " + bounds + ", got '" + text + "'";
  };
  return {check, bounds};
}

CLI::Validator TakenBy(std::function<void(const std::string&)> take, std::string description) {
  const auto check = [take = std::move(take)](const std::string& text) -> std::string {
    try {
      take(text);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  return {check, std::move(description)};
}

CLI::Validator OneOf(std::vector<std::string> words, std::vector<std::string> not_shown) {
  std::string shown = CLI::detail::join(words, ", ");
  const std::string description = "{" + CLI::detail::join(words, ",") + "}";
  const auto check = [words = std::move(words), not_shown = std::move(not_shown),
                      shown = std::move(shown)](const std::string& text) -> std::string {
    if (std::ranges::find(words, text) != words.end() || std::ranges::find(not_shown, text) != not_shown.end())
      return {};
    return "expected one of " + shown + ", got '" + text + "'" + DidYouMean(text, words);
  };
  return {check, description};
}

CLI::Validator Endpoint() {
  return TakenBy([](const std::string& text) { static_cast<void>(HostOf(text)); }, "ENDPOINT");
}

CLI::Validator Channel() {
  std::vector<std::string> shown, others;
  for (const ChannelName& channel : ChannelNames()) {
    (channel.leaves_the_process && channel.lacking.empty() ? shown : others).emplace_back(channel.name);
  }
  return OneOf(std::move(shown), std::move(others));
}

CLI::Validator EachOf(const CLI::Validator& item) {
  const auto check = [item](const std::string& list) -> std::string {
    for (const std::string& text : AtCommas(list)) {
      std::string wrong = text.empty() ? ExpectedList("names", list) : item(text);
      if (!wrong.empty()) return wrong;
    }
    return {};
  };
  return {check, item.get_description()};
}

CLI::Validator GivenValue() {
  const auto check = [](const std::string& text) -> std::string {
    if (text.empty()) return "expected a value, got an empty one (a variable that is not set?)";
    return text.starts_with("--") ? "expected a value, got '" + text + "', which begins like an option" : "";
  };
  return {check, ""};
}

namespace {

bool ReadItem(const std::string& text, std::string& name) {
  name = text;
  return !text.empty();
}

template <std::integral Number>
bool ReadItem(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0;
}

}  // namespace

template <typename Item>
CLI::Option* DeclareList(CLI::App& app, const std::string& flag, std::vector<Item>& items, const std::string& help) {
  // CLI11's own delimiter would silently drop an empty item.
  const auto take = [&items, flag](const std::vector<std::string>& lists) {
    const std::string of = std::is_integral_v<Item> ? "whole numbers" : "names";
    for (const std::string& list : lists) {
      for (const std::string& text : AtCommas(list)) {
        Item item;
        if (!ReadItem(text, item)) {
          throw CLI::ValidationError(flag, ExpectedList(of, list));
        }
        items.push_back(std::move(item));
      }
    }
  };
  return app.add_option_function<std::vector<std::string>>(flag, take, help)->allow_extra_args(false);
}
template CLI::Option* DeclareList(CLI::App&, const std::string&, std::vector<std::string>&, const std::string&);
template CLI::Option* DeclareList(CLI::App&, const std::string&, std::vector<std::int32_t>&, const std::string&);
template CLI::Option* DeclareList(CLI::App&, const std::string&, std::vector<std::int64_t>&, const std::string&);

void Timeout::Declare(CLI::App& app) {
  app.add_option("--timeout", seconds_, "Seconds that the whole command may take")
      ->check(Number(0.001, 1e6))
      ->capture_default_str();
}

std::chrono::milliseconds Timeout::duration() const {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds_));
}

namespace {

// An endpoint stands alone only by mistake: behind another one without a comma between, or behind an option that is
// misspelt.
CLI::Validator Folder() {
  const auto check = [](const std::string& text) -> std::string {
    return text.find("://") == std::string::npos ? "" : "expected a folder or a file, got the endpoint '" + text + "'";
  };
  return {check, ""};
}

CLI::Validator LoadFormatName() {
  const auto check = [](const std::string& text) -> std::string {
    std::vector<std::string> known;
    for (const LoadFormat& format : AllLoadFormats()) {
      if (format.read_by != LoadFormat::ReadBy::kNothing) known.emplace_back(format.name);
    }
    try {
      static_cast<void>(LoadFormatNamed(text));
      return {};
    } catch (const Error& error) {
      return error.what() + DidYouMean(error.code() == ErrorCode::kInvalidArgument ? text : "", known);
    }
  };
  return {check, "FORMAT"};
}

// The items of "a=DIR, b=DIR". A comma alone is a part of the path: runs are often named by "lr=1,seed=2".
std::vector<std::string> AtCommaAndBlank(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(", ", begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    begin = end + 2;
  }
  return items;
}

}  // namespace

CLI::Option* CheckpointFlags::Declare(CLI::App& app, const std::string& help, bool required) {
  CLI::Option* const model =
      app.add_option("DIR,--model", path_, help + ": --model DIR, or DIR alone")->required(required)->check(Folder());
  CLI::Option* const format =
      app.add_option("--load-format", load_format_, "The checkpoint's format (docs/checkpoints.md)")
          ->check(LoadFormatName())
          ->capture_default_str();
  CLI::Option* const secondary = app.add_option("--secondary-weights", secondary_,
                                                "PREFIX=PATH: another checkpoint, whose names begin with PREFIX here")
                                     ->allow_extra_args(false);
  if (required) return model;
  format->needs(model);
  secondary->needs(model);
  return model;
}

CheckpointSource CheckpointFlags::Source() const {
  CheckpointSource source{.path = AbsolutePath(path_), .load_format = load_format_};
  for (const std::string& list : secondary_) {
    for (const std::string& given : AtCommaAndBlank(list)) {
      const std::size_t equals = given.find('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == given.size()) {
        throw UsageError("--secondary-weights: expected PREFIX=PATH, got '" + given + "'");
      }
      source.secondary.push_back({given.substr(0, equals), AbsolutePath(given.substr(equals + 1))});
    }
  }
  return source;
}

Json CheckpointJson(const CheckpointSource& source) {
  Json json = {
      {"weights_path", source.path}, {"load_format", source.load_format}, {"secondary_weights", Json::array()}};
  for (const auto& [prefix, path] : source.secondary) {
    json["secondary_weights"].push_back({{"prefix", prefix}, {"path", path}});
  }
  return json;
}

void ExpectBetweenProcesses(const std::vector<std::string>& channels) {
  if (channels.empty() || !std::ranges::all_of(channels, StaysInTheProcess)) return;
  throw UsageError("--channel " + channels.front() +
                   ": expected a channel that reaches other processes, got one that stays in this one");
}

std::string WithCommas(const std::vector<std::string>& items) { return CLI::detail::join(items, ","); }

std::map<std::string, std::string> ParseAdapters(const std::vector<std::string>& texts) {
  std::map<std::string, std::string> adapters;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      throw UsageError("--adapter: expected NAME=DIR, got '" + text + "'");
    }
    if (adapters.emplace(text.substr(0, equals), AbsolutePath(text.substr(equals + 1))).second) continue;
    throw UsageError("--adapter: expected each name once, got '" + text.substr(0, equals) + "' twice");
  }
  return adapters;
}

Version ParseVersion(const std::string& text, const std::string& flag) {
  const std::size_t at = text.rfind('@');
  Version version;
  if (at != std::string::npos && at > 0) {
    version.lineage = text.substr(0, at);
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + at + 1, end, version.step);
    if (error == std::errc() && stop == end) return version;
  }
  throw UsageError(flag + ": expected LINEAGE@STEP, got '" + text + "'");
}

Version ParseWholeVersion(const std::string& text, const std::string& flag) {
  const std::size_t colon = text.rfind(':');
  const std::optional<Digest> digest =
      colon == std::string::npos ? std::nullopt : Digest::FromHex(std::string_view(text).substr(colon + 1));
  if (!digest) {
    throw UsageError(flag + ": expected LINEAGE@STEP:DIGEST, with the 32 digits that --json shows, got '" + text + "'");
  }
  Version version = ParseVersion(text.substr(0, colon), flag);
  version.digest = *digest;
  return version;
}

std::string VersionText(const Json& version) {
  if (!version.is_object()) return "nothing";
  return Escaped(VersionFromJson(version).ToString());
}

std::string RateText(const Json& gb_per_s) {
  const double rate = gb_per_s.get<double>();
  return rate > 0 ? layercast::RateText(rate) : "-";
}

std::string AbsolutePath(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

void DeclareScales(CLI::App& app, HeldScales& scales) {
  app.add_flag("--input-scales", scales.inputs, "Also holds the scale of each quantized layer's activations");
  app.add_flag("--kv-cache-scales", scales.kv_cache, "Also holds the scales of each attention layer's cache");
}

void DeclareExperts(CLI::App& app, bool& parallel, ExpertPlacement& placement) {
  CLI::Option* const spread =
      app.add_flag("--expert-parallel", parallel,
                   "Spreads a mixture's experts over the ranks, each whole, instead of a part of each on every rank");
  app.add_option_function<std::string>(
         "--expert-placement", [&placement](const std::string& name) { placement = ExpertPlacementNamed(name); },
         "Which of them a rank of N holds: neighbours, or every N-th")
      ->check(OneOf(KnownExpertPlacements()))
      ->default_str(std::string(ExpertPlacementName(placement)))
      ->needs(spread);
}

void DeclareStageLayers(CLI::App& app, std::vector<std::int64_t>& layers) {
  DeclareList(app, "--pp-layers", layers, "Layers of each pipeline stage: 4,3,3; by default about as many")
      ->needs("--pp");
}

void DeclareWeightRules(CLI::App& app, std::string& path) {
  app.add_option("--weight-rules", path,
                 "A JSON file that says how the trainer calls its tensors and lays them out (docs/checkpoints.md)");
}

std::string AbsoluteDraft(const std::string& draft) {
  return draft.empty() || draft == kOwnDraftLayers ? draft : AbsolutePath(draft);
}

}  // namespace layercast::cli

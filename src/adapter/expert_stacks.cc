#include "src/adapter/expert_stacks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "layercast/error.h"
#include "src/adapter/adapter_tensors.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::array<std::string_view, 3> kProjections = {"gate_up_proj", "up_proj",
                                                          "down_proj"};  // from the inner wrapper out
constexpr std::array<int, 3> kFirstRight = {0, 19, 1};

// Whether an entry of target_parameters names that parameter.
bool Names(std::string_view target, std::string_view parameter) {
  if (!parameter.ends_with(target)) return false;
  return parameter.size() == target.size() || parameter[parameter.size() - target.size() - 1] == '.';
}

// Throws kUnsupported if the configuration targets a parameter of the module that is no projection: a bias, say.
void CheckTargets(const AdapterConfig& config, const std::string& module_path) {
  for (const std::string& target : config.target_parameters) {
    const std::size_t dot = target.rfind('.');
    if (dot == std::string::npos || !Names(std::string_view(target).substr(0, dot), module_path)) continue;
    const std::string name = target.substr(dot + 1);
    if (std::ranges::find(kProjections, name) != kProjections.end()) continue;
    throw Error(ErrorCode::kUnsupported, module_path + ": target_parameters " + Quote(target) +
                                             ": expected gate_up_proj, up_proj or down_proj of experts, got " +
                                             Quote(name));
  }
}

bool IsPrerelease(std::string_view suffix) {
  suffix.remove_prefix(std::min(suffix.find_first_not_of(".-_"), suffix.size()));
  constexpr std::array<std::string_view, 5> kMarks = {"a", "b", "c", "rc", "dev"};
  return std::ranges::any_of(kMarks, [&](std::string_view mark) { return suffix.starts_with(mark); }) ||
         suffix.starts_with("pre");
}

}  // namespace

bool IsStackOfExperts(std::string_view module_path) {
  return module_path == "experts" || module_path.ends_with(".experts");
}

std::vector<std::string> ParametersOfStack(const AdapterConfig& config, const std::string& module_path) {
  CheckTargets(config, module_path);
  std::vector<std::string> inner_first;
  for (const std::string_view name : kProjections) {
    const std::string parameter = module_path + "." + std::string(name);
    const auto names = [&](const std::string& target) { return Names(target, parameter); };
    if (std::ranges::any_of(config.target_parameters, names)) inner_first.emplace_back(name);
  }
  return inner_first;
}

StackReading ReadingOf(std::string_view peft_version) {
  std::string_view rest = peft_version.substr(0, peft_version.find('@'));
  std::array<int, 3> release = {0, 0, 0};
  for (std::size_t i = 0; i < release.size(); ++i) {
    if (i > 0 && (rest.size() < 2 || rest[0] != '.' || rest[1] < '0' || rest[1] > '9')) break;
    if (i > 0) rest.remove_prefix(1);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), release[i]);
    if (error != std::errc() || release[i] < 0) return StackReading::kUnknown;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  const bool before = release < kFirstRight || (release == kFirstRight && IsPrerelease(rest));
  return before ? StackReading::kSwapped : StackReading::kRight;
}

std::string DescribeReadings(const AdapterConfig& config) {
  const std::string version = config.peft_version.empty() ? "none" : Quote(config.peft_version);
  return "expected stacked experts of peft_version 0.19.1 or newer, A [experts * r, in] and B [out, r * experts], "
         "got " +
         version +
         ": before, PEFT wrote A [experts * r, out] and B [in, r * experts], which is another function: load "
         "and save the adapter with a newer PEFT where it was trained";
}

void CheckStack(const AdapterModule& module, std::span<const TensorSpec> specs, const AdapterConfig& config,
                const StackSizes& base) {
  const TensorSpec& a = specs[module.a];
  const TensorSpec& b = specs[module.b];
  const std::int64_t ranks = base.experts * module.rank;
  const auto is = [&](std::int64_t in, std::int64_t out) {
    return a.shape == Shape{ranks, in} && b.shape == Shape{out, ranks};
  };
  const std::string subject = module.path + "." + module.parameter + ": ";
  const bool swapped = is(base.out, base.in);
  if (ReadingOf(config.peft_version) == StackReading::kUnknown && swapped) {
    throw Error(ErrorCode::kUnsupported, subject + DescribeReadings(config));
  }
  if (is(base.in, base.out)) return;
  throw Error(ErrorCode::kInvalidArgument, subject + "expected A " + ToString({ranks, base.in}) + " and B " +
                                               ToString({base.out, ranks}) + ", got " + ToString(a.shape) + " and " +
                                               ToString(b.shape));
}

}  // namespace layercast

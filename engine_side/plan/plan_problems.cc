#include "engine_side/plan/plan_problems.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::size_t kMostListed = 5;

}  // namespace

std::string ProblemLine(std::string_view kind, const std::vector<std::string>& problems, std::string_view separator) {
  if (problems.empty()) return {};
  std::string line = "\n  " + std::to_string(problems.size()) + " ";
  line += kind;
  for (std::size_t i = 0; i < std::min(problems.size(), kMostListed); ++i) {
    line += i == 0 ? ": " : separator;
    line += problems[i];
  }
  if (problems.size() > kMostListed) line += " and " + std::to_string(problems.size() - kMostListed) + " more";
  return line;
}

std::vector<std::string> PlanProblems::Lines() const {
  std::vector<std::string> lines;
  for (const std::string& text : misfits) lines.push_back("does not fit: " + text);
  for (const std::string& name : missing) lines.push_back("missing: " + name);
  for (const std::string& text : repeated) lines.push_back("repeated: " + text);
  for (const Unexpected& tensor : unexpected) lines.push_back("unexpected: " + tensor.why);
  return lines;
}

std::string PlanProblems::Summary() const {
  std::vector<std::string> names;
  std::ranges::transform(unexpected, std::back_inserter(names), [](const Unexpected& one) { return Quote(one.name); });
  const std::size_t most = std::max({misfits.size(), missing.size(), repeated.size()});
  const bool more = most > kMostListed || !unexpected.empty();
  return ProblemLine("that do not fit", misfits, "; ") +
         ProblemLine("missing. Following weights were not initialized from checkpoint", missing) +
         ProblemLine("repeated", repeated, "; ") + ProblemLine("unexpected", names) +
         (more ? "\n  `layercast plan --model DIR`, or with `--publisher EP`, lists every one and why" : "");
}

}  // namespace layercast

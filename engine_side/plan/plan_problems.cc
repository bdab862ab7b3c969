#include "engine_side/plan/plan_problems.h"

#include <algorithm>

namespace layercast {
namespace {

constexpr std::size_t kMostListed = 20;

void Append(std::string& text, const char* kind, const std::vector<std::string>& problems, const char* separator) {
  if (problems.empty()) return;
  text += std::string(text.empty() ? "" : "; ") + std::to_string(problems.size()) + " " + kind;
  for (std::size_t i = 0; i < std::min(problems.size(), kMostListed); ++i) {
    text += (i == 0 ? "" : separator) + problems[i];
  }
  if (problems.size() > kMostListed) text += " and " + std::to_string(problems.size() - kMostListed) + " more";
}

}  // namespace

std::vector<std::string> PlanProblems::Lines() const {
  std::vector<std::string> lines;
  for (const std::string& text : misfits) lines.push_back("does not fit: " + text);
  for (const std::string& name : missing) lines.push_back("missing: " + name);
  for (const std::string& text : repeated) lines.push_back("repeated: " + text);
  for (const std::string& text : unexpected) lines.push_back("unexpected: " + text);
  return lines;
}

std::string PlanProblems::Summary() const {
  std::string text;
  Append(text, "that do not fit: ", misfits, "; ");
  Append(text, "missing. Following weights were not initialized from checkpoint: ", missing, ", ");
  Append(text, "repeated: ", repeated, "; ");
  Append(text, "unexpected: ", unexpected, "; ");
  return text;
}

}  // namespace layercast

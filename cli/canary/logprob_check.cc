#include "cli/canary/logprob_check.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string_view>

#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

constexpr std::int64_t kNewTokens = 16;

// Nullopt: it is no list of tokens.
std::optional<std::vector<std::int32_t>> TokensIn(std::string_view line) {
  std::vector<std::int32_t> tokens;
  for (const char* at = line.data(); at <= line.data() + line.size(); ++at) {
    std::int32_t token = 0;
    const auto [end, error] = std::from_chars(at, line.data() + line.size(), token);
    if (error != std::errc() || token < 0) return std::nullopt;
    tokens.push_back(token);
    if (end != line.data() + line.size() && *end != ',') return std::nullopt;
    at = end;
  }
  return tokens;
}

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

}  // namespace

LogprobCheck::LogprobCheck(const std::string& path, double max_difference) : max_difference_(max_difference) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kNotFound, "prompts " + Quote(path) + ": no such file, or it cannot be read");
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const auto tokens = TokensIn(line);
    if (!tokens) {
      throw Error(ErrorCode::kInvalidArgument, "prompts " + Quote(path) + ", line " + std::to_string(number) +
                                                   ": expected token ids, 3,11,4, got " + Quote(line));
    }
    prompts_.push_back(*tokens);
  }
  if (prompts_.empty()) throw Error(ErrorCode::kInvalidArgument, "prompts " + Quote(path) + ": expected one or more");
}

double LogprobCheck::MeanOf(Controller& engine) const {
  double sum = 0;
  std::size_t tokens = 0;
  for (const GeneratedSequence& answer : engine.Generate({.prompts = prompts_, .max_new = kNewTokens})) {
    for (const double logprob : answer.logprobs) sum += logprob;
    tokens += answer.logprobs.size();
  }
  return sum / static_cast<double>(tokens);
}

std::optional<Error> LogprobCheck::Against(double before, double now) const {
  if (std::abs(now - before) <= max_difference_) return std::nullopt;  // which no NaN is
  return Error(ErrorCode::kFailedPrecondition, "the check failed: the mean log-probability of what it answers is " +
                                                   NumberText(now) + ", and was " + NumberText(before) +
                                                   ": expected a difference of at most " + NumberText(max_difference_));
}

}  // namespace layercast::cli

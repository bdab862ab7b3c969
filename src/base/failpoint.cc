#include "src/base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast {
namespace {

// What docs/cli.md lists.
constexpr std::array<std::string_view, 19> kNames = {
    "answer.hello", "serve.probe",    "send.chunk",   "send.tensor", "serve.chunk",    "receive.chunk", "layer_buffer",
    "materialize",  "fuse_and_shard", "quantize",     "verify",      "commit.prepare", "commit.copy",   "commit.undo",
    "adapter.fill", "adapter.flip",   "adapter.move", "wake",        "store.step"};

void CheckName(std::string_view name) {
  if (std::ranges::find(kNames, name) != kNames.end()) return;
  std::string known;
  for (const std::string_view one : kNames) known += (known.empty() ? "" : ", ") + std::string(one);
  throw Error(ErrorCode::kInvalidArgument,
              "LAYERCAST_FAILPOINTS: expected one of " + known + ", got '" + std::string(name) + "'");
}

[[noreturn]] void Malformed(std::string_view item) {
  throw Error(
      ErrorCode::kInvalidArgument,
      "LAYERCAST_FAILPOINTS: expected [role:]name=kill|stop|throw|corrupt[@skip], got '" + std::string(item) + "'");
}

}  // namespace

FailPoints::FailPoints(std::string_view specification, std::string_view role) {
  static const std::map<std::string, Action, std::less<>> kActions = {
      {"kill", Action::kKill}, {"stop", Action::kStop}, {"throw", Action::kThrow}, {"corrupt", Action::kCorrupt}};
  while (!specification.empty()) {
    const std::string_view item = specification.substr(0, specification.find(','));
    specification.remove_prefix(std::min(specification.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) Malformed(item);
    const std::size_t at = std::min(item.find('@'), item.size());
    const auto action = kActions.find(item.substr(equals + 1, at - equals - 1));
    if (action == kActions.end()) Malformed(item);
    long skip = 0;
    if (at < item.size()) {
      const auto parsed = std::from_chars(item.data() + at + 1, item.data() + item.size(), skip);
      if (parsed.ec != std::errc() || parsed.ptr != item.data() + item.size() || skip < 0) Malformed(item);
    }
    std::string_view name = item.substr(0, equals);
    const std::size_t colon = name.find(':');
    CheckName(colon == std::string_view::npos ? name : name.substr(colon + 1));
    if (colon != std::string_view::npos) {
      if (name.substr(0, colon) != role) continue;
      name.remove_prefix(colon + 1);
    }
    armed_.emplace(std::piecewise_construct, std::forward_as_tuple(name), std::forward_as_tuple(action->second, skip));
  }
}

FailPoints FailPoints::FromEnvironment(std::string_view role) {
  const char* specification = std::getenv("LAYERCAST_FAILPOINTS");
  return FailPoints(specification == nullptr ? "" : specification, role);
}

bool FailPoints::Hit(std::string_view name) {
  if (suspended_) return false;
  if (armed_.empty()) return false;
  const auto found = armed_.find(name);
  if (found == armed_.end() || found->second.remaining.fetch_sub(1) != 0) return false;
  log::warn("failpoint {} fired", name);
  switch (found->second.action) {
    case Action::kKill: ::kill(::getpid(), SIGKILL); break;
    case Action::kStop: ::raise(SIGSTOP); break;  // this thread, too, goes on only when the process does
    case Action::kThrow: throw Error(ErrorCode::kInternal, "failpoint " + std::string(name));
    case Action::kCorrupt: return true;
  }
  return false;
}

}  // namespace layercast

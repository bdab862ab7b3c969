#include "cli/top/top_frame.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <utility>

#include "cli/arguments/arguments.h"
#include "cli/terminal/bar_line.h"
#include "cli/terminal/wrapped.h"
#include "src/base/run_at.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

std::string VersionOf(const Json& version) {
  return version.is_object() ? Escaped(RunAt(VersionFromJson(version)), 48) : "no version";
}

BarState BarOf(const std::string& what, const Json& progress) {
  return {.what = what,
          .stage = progress.at("stage").get<std::string>(),
          .bytes = progress.at("bytes").get<std::uint64_t>(),
          .bytes_total = progress.at("bytes_total").get<std::uint64_t>()};
}

BarTimes TimesOf(std::uint64_t bytes, const Json& progress) {
  const double seconds = progress.at("elapsed_ms").get<double>() * 1e-3;
  return {.bytes_per_second = seconds > 0 ? static_cast<double>(bytes) / seconds : 0,
          .elapsed = std::chrono::seconds(std::lround(std::clamp(seconds, 0.0, 1e6)))};
}

void AddProgress(const Json& progress, std::size_t width, std::vector<std::string>& lines) {
  if (!progress.is_object()) return;
  const BarState all = BarOf("  " + VersionOf(progress.at("version")), progress);
  lines.push_back(BarLine(all, TimesOf(all.bytes, progress), width));
  if (progress.at("ranks").size() < 2) return;
  for (const Json& rank : progress["ranks"]) {
    const BarState one = BarOf("    rank " + rank.at("rank").dump(), rank);
    lines.push_back(BarLine(one, TimesOf(one.bytes, progress), width));
  }
}

std::string ChannelOf(const Json& channel) {
  if (!channel.is_object()) return "";
  return ", " + Escaped(channel.at("name").get<std::string>()) + " " + RateText(channel.at("gb_per_s"));
}

void AddEngine(const PeerState& peer, std::size_t width, std::vector<std::string>& lines) {
  const Json& status = peer.engine;
  lines.push_back("engine " + peer.endpoint + "  " + Escaped(status.at("state").get<std::string>()) + "  " +
                  VersionOf(status.at("version")) + "  " + std::to_string(status.at("pids").size()) + " ranks" +
                  ChannelOf(status.at("channel")));
  AddProgress(status.value("progress", Json()), width, lines);
  const Json& failed = status.at("last_error");
  if (failed.is_object()) lines.push_back("  last reload failed: " + Escaped(failed.at("message").get<std::string>()));
}

void AddPublisher(const PeerState& peer, std::vector<std::string>& lines) {
  lines.push_back("publisher " + peer.endpoint + "  " + std::to_string(peer.publisher->versions.size()) + " versions");
  for (const wire::VersionStatus& version : peer.publisher->versions) {
    lines.push_back("  " + Escaped(RunAt({version.lineage, version.step, version.digest}), 48) + "  " +
                    (version.stream ? "stream  " : "snapshot  ") + std::to_string(version.bytes) + " bytes  " +
                    std::to_string(version.readers) + " readers");
    for (const wire::ReaderStatus& reader : version.receivers) {
      lines.push_back("    " + Escaped(reader.engine, 64) + " rank " + std::to_string(reader.rank) + "  " +
                      std::to_string(reader.bytes) + " bytes  " +
                      RateText(static_cast<double>(reader.bytes_per_second) * 1e-9));
    }
  }
}

// A peer whose answer cannot be read says so, and stands in nobody's way.
void AddPeer(const PeerState& peer, std::size_t width, std::vector<std::string>& lines) {
  const std::size_t begin = lines.size();
  try {
    if (peer.engine.is_object()) AddEngine(peer, width, lines);
    if (peer.publisher) AddPublisher(peer, lines);
  } catch (const std::exception& error) {
    lines.resize(begin);
    lines.push_back(peer.endpoint + "  its answer cannot be read: " + Escaped(error.what()));
  }
  const std::string kind = peer.is_engine ? "engine " : "publisher ";
  if (lines.size() == begin)
    lines.push_back(kind + peer.endpoint + (peer.asked ? "  never answered" : "  not heard yet"));
  if (!peer.error.empty()) lines.push_back("  NO ANSWER: " + Escaped(peer.error));
}

}  // namespace

std::vector<std::string> TopFrame(const std::vector<PeerState>& peers, std::size_t width) {
  const auto silent = std::ranges::count_if(peers, [](const PeerState& peer) { return !peer.error.empty(); });
  std::vector<std::string> lines = {"layercast top: " + std::to_string(peers.size()) + " peers, " +
                                    std::to_string(silent) + " do not answer"};
  for (const PeerState& peer : peers) AddPeer(peer, width, lines);
  for (std::string& line : lines) line.resize(BytesWithin(line, width));
  return lines;
}

}  // namespace layercast::cli

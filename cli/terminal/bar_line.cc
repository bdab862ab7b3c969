#include "cli/terminal/bar_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

constexpr std::size_t kLeastBar = 8;  // columns, with its brackets
constexpr std::size_t kMostBar = 42;

struct Unit {
  const char* name;
  double bytes;
};

// The unit in which a number of bytes has at most three digits before the point.
Unit UnitOf(double bytes) {
  constexpr std::array<Unit, 7> kUnits = {
      {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}, {"EB", 1e18}}};
  const auto larger = std::ranges::find_if(kUnits, [bytes](const Unit& unit) { return unit.bytes > bytes; });
  return larger == kUnits.begin() ? kUnits.front() : *std::prev(larger);
}

std::string Number(double bytes, const Unit& unit) {
  char text[32];
  std::snprintf(text, sizeof(text), unit.bytes == 1 ? "%.0f" : "%.1f", bytes / unit.bytes);
  return text;
}

// "1.2/16.0 GB"; without a total "1.2 GB".
std::string BytesText(const BarState& state) {
  const auto bytes = static_cast<double>(state.bytes);
  const auto total = static_cast<double>(state.bytes_total);
  if (state.bytes_total == 0) return state.bytes == 0 ? "" : Number(bytes, UnitOf(bytes)) + " " + UnitOf(bytes).name;
  return Number(bytes, UnitOf(total)) + "/" + Number(total, UnitOf(total)) + " " + UnitOf(total).name;
}

std::string RateText(double bytes_per_second) {
  if (!std::isfinite(bytes_per_second) || bytes_per_second < 1) return "";
  const Unit unit = UnitOf(bytes_per_second);
  return Number(bytes_per_second, unit) + " " + unit.name + "/s";
}

// "1:05", "2:01:05". Empty for what nobody waits for.
std::string TimeText(double time) {
  if (!(time >= 0) || time >= 100 * 3600) return "";
  const auto whole = static_cast<long>(time);
  char text[32];
  if (whole < 3600) {
    std::snprintf(text, sizeof(text), "%ld:%02ld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof(text), "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return text;
}

// The remaining time; without a total, the time that has passed.
std::string TimeText(const BarState& state, const BarTimes& times) {
  if (state.bytes_total == 0) return TimeText(static_cast<double>(times.elapsed.count()));
  if (state.bytes >= state.bytes_total || times.bytes_per_second < 1) return "";
  return TimeText(std::ceil(static_cast<double>(state.bytes_total - state.bytes) / times.bytes_per_second));
}

double ShareOf(const BarState& state) {
  return std::min(1.0, static_cast<double>(state.bytes) / static_cast<double>(state.bytes_total));
}

// 100 % are there only when all is.
std::string Percent(const BarState& state) {
  if (state.bytes_total == 0) return "";
  const int percent = state.bytes >= state.bytes_total ? 100 : std::min(99, static_cast<int>(ShareOf(state) * 100));
  return std::to_string(percent) + " %";
}

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

// How many columns a character may take, by its first byte: those of three and four bytes may be wide.
std::size_t ColumnsFrom(char first) { return static_cast<unsigned char>(first) >= 0xE0U ? 2 : 1; }

std::size_t Columns(std::string_view text) {
  std::size_t columns = 0;
  for (const char byte : text) columns += BeginsCharacter(byte) ? ColumnsFrom(byte) : 0;
  return columns;
}

// The whole characters of `text` that fit into so many columns.
std::string Cut(const std::string& text, std::size_t room) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!BeginsCharacter(text[i])) continue;
    columns += ColumnsFrom(text[i]);
    if (columns > room) return text.substr(0, i);
  }
  return text;
}

std::string Bar(double share, std::size_t columns) {
  const std::size_t inner = columns - 2;
  const auto full = static_cast<std::size_t>(share * static_cast<double>(inner));
  return "[" + std::string(full, '#') + std::string(inner - full, '-') + "]";
}

// A piece of the line; the one of the lowest rank goes first where there is no room.
constexpr int kRankOfPercent = 8;
struct Piece {
  int rank;
  std::string text;
};

std::size_t ColumnsOf(const std::vector<Piece>& pieces) {
  std::size_t columns = 0;
  for (const Piece& piece : pieces) columns += Columns(piece.text) + 1;  // and what separates it from the next
  return columns == 0 ? 0 : columns - 1;
}

}  // namespace

std::string BarLine(const BarState& state, const BarTimes& times, std::size_t width) {
  const std::size_t room = width == 0 ? 0 : width - 1;
  const std::string time = TimeText(state, times);
  std::vector<Piece> pieces = {{1, Escaped(state.what)},
                               {7, Escaped(state.stage)},
                               {kRankOfPercent, Percent(state)},
                               {6, BytesText(state)},
                               {4, RateText(times.bytes_per_second)},
                               {5, time},
                               {3, time.empty() || state.bytes_total == 0 ? "" : "left"},
                               {2, Escaped(state.slowest)}};
  std::erase_if(pieces, [](const Piece& piece) { return piece.text.empty(); });
  while (pieces.size() > 1 && ColumnsOf(pieces) > room) {
    pieces.erase(std::ranges::min_element(pieces, {}, &Piece::rank));
  }
  const std::size_t used = ColumnsOf(pieces) + 1;
  if (state.bytes_total != 0 && used + kLeastBar <= room) {
    const auto percent = std::ranges::find(pieces, kRankOfPercent, &Piece::rank);
    pieces.insert(percent, {0, Bar(ShareOf(state), std::min(kMostBar, room - used))});
  }
  std::string line;
  for (const Piece& piece : pieces) line += (line.empty() ? "" : " ") + piece.text;
  return Cut(line, room);
}

}  // namespace layercast::cli

#include "cli/terminal/wrapped.h"

#include <algorithm>
#include <cstdint>

namespace layercast::cli {
namespace {

// The columns that a byte of UTF-8 adds, at most: characters of three bytes and more may take two columns.
std::size_t ColumnsOf(char byte) {
  const auto value = static_cast<std::uint8_t>(byte);
  if (value >= 0x80 && value < 0xC0) return 0;
  return value < 0xE0 ? 1 : 2;
}

void AppendWrapped(std::string_view line, std::string& out) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), kMostColumns / 2);
  std::string lead(std::min(indent, line.size()), ' ');
  line.remove_prefix(lead.size());
  for (;;) {
    const std::size_t fits = BytesWithin(line, kMostColumns - lead.size());
    if (fits == line.size()) break;
    const std::size_t blank = line.rfind(' ', fits);  // the one behind the last that fits will do
    const bool breaks = blank != std::string_view::npos && blank > 0;
    out += lead + std::string(line.substr(0, breaks ? blank : fits)) + "\n";
    line.remove_prefix(breaks ? blank + 1 : fits);
    if (lead.size() == indent) lead += "    ";
  }
  out += lead + std::string(line) + "\n";
}

}  // namespace

std::size_t BytesWithin(std::string_view text, std::size_t columns) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    used += ColumnsOf(text[i]);
    if (used > columns) return i;
  }
  return text.size();
}

std::string Wrapped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    AppendWrapped(text.substr(0, end), out);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace layercast::cli

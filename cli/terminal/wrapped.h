// Text for people, no wider than a terminal. Used by the subcommands whose lines grow with what they tell of.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace layercast::cli {

inline constexpr std::size_t kMostColumns = 160;

// `text` with every line that is longer broken at a blank, and a word that is longer anywhere. What is left of a line
// stands under it, indented by four more.
std::string Wrapped(std::string_view text);
// How many bytes of `text` fit into so many columns: whole characters.
std::size_t BytesWithin(std::string_view text, std::size_t columns);

}  // namespace layercast::cli

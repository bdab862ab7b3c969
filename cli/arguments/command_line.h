// A command line on its way into the parser, and what is said of one that the parser refuses. Used by main.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

namespace layercast::cli {

// The words of a command line as the parser takes them, the last one first. Options that have another name by now come
// under that, and a line on standard error says so. A list that goes on in the next word ("a, b") becomes one word. The
// parser would take the word behind "--step=" for its value, so the empty value becomes a word of its own, which is
// refused.
std::vector<std::string> WordsOf(std::span<char* const> arguments, const CLI::App& app);

// What is wrong with a command line that the parser has refused, and what may have been meant.
std::string Explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace layercast::cli

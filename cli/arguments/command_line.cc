#include "cli/arguments/command_line.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <utility>

#include "cli/arguments/nearest.h"

namespace layercast::cli {
namespace {

struct OldName {
  std::string_view subcommand;
  std::string_view was;
  std::string_view is;
};
constexpr OldName kOldNames[] = {
    {"publish", "--checkpoint", "--model"},
    {"reload", "--weights-path", "--model"},
    {"verify", "--against", "--model"},
};

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> SubcommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands({})) names.push_back(subcommand->get_name());
  return names;
}

// Null if no subcommand is called so.
const CLI::App* SubcommandNamed(const std::string& name, const CLI::App& app) {
  for (const CLI::App* subcommand : app.get_subcommands({})) {
    if (subcommand->get_name() == name) return subcommand;
  }
  return nullptr;
}

bool IsOption(std::string_view word) { return word.starts_with("--"); }

// "--step" of "--step=3".
std::string NameIn(const std::string& word) { return word.substr(0, word.find('=')); }

// The word with the name that its option has now.
std::string Renamed(const std::string& word, const std::string& subcommand) {
  const std::string name = NameIn(word);
  for (const OldName& old : kOldNames) {
    if (old.subcommand != subcommand || old.was != name) continue;
    const std::string is(old.is);
    std::fprintf(stderr, "layercast %s: %s is called %s now\n", subcommand.c_str(), name.c_str(), is.c_str());
    return is + word.substr(name.size());
  }
  return word;
}

bool TakesAList(const CLI::App& subcommand, const std::string& name) {
  const CLI::Option* const option = subcommand.get_option_no_throw(name);
  return option != nullptr && option->get_expected_max() > 1;
}

// Puts the words together over which a list is spread.
std::vector<std::string> WithWholeLists(const std::vector<std::string>& words, const CLI::App& subcommand) {
  std::vector<std::string> whole;
  bool in_list = false;  // the last of `whole` holds the value of an option that takes a list
  for (const std::string& word : words) {
    if (in_list && whole.back().ends_with(',') && !IsOption(word)) {
      whole.back() += " " + word;
      continue;
    }
    const bool is_value = !whole.empty() && IsOption(whole.back()) && !IsOption(word);
    in_list = TakesAList(subcommand, is_value ? whole.back() : NameIn(word));
    whole.push_back(word);
  }
  return whole;
}

// The options that the parser has not placed.
std::string UnknownOptions(const CLI::App& subcommand) {
  std::string text;
  for (const std::string& word : subcommand.remaining()) {
    if (!word.starts_with('-')) continue;
    if (!text.empty()) text += text.ends_with('?') ? " " : "; ";
    text += "there is no option '" + word + "'" + DidYouMean(NameIn(word), OptionsOf(subcommand));
  }
  return text;
}

}  // namespace

std::vector<std::string> WordsOf(std::span<char* const> arguments, const CLI::App& app) {
  std::vector<std::string> words;
  const CLI::App* subcommand = nullptr;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    std::string word = arguments[i];
    if (subcommand == nullptr) {
      subcommand = SubcommandNamed(word, app);
    } else if (IsOption(word)) {
      word = Renamed(word, subcommand->get_name());
    }
    const bool has_empty_value = IsOption(word) && word.find('=') + 1 == word.size();
    if (has_empty_value) word.pop_back();
    words.push_back(std::move(word));
    if (has_empty_value) words.emplace_back();
  }
  if (subcommand != nullptr) words = WithWholeLists(words, *subcommand);
  std::ranges::reverse(words);
  return words;
}

std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  if (named.empty()) {
    const std::vector<std::string> words = app.remaining();
    if (words.empty()) return error.what();
    const std::string& first = words.front();
    return "expected a subcommand, got '" + first + "'" +
           DidYouMean(NameIn(first), IsOption(first) ? OptionsOf(app) : SubcommandsOf(app));
  }
  // An option that is misspelt is behind other mistakes: its value stands where a folder is expected, and if it was
  // required it is missing too, which is all that the parser says.
  const std::string unknown = UnknownOptions(*named.front());
  if (unknown.empty()) return error.what();
  const bool lacking = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
  return (lacking ? std::string(error.what()) + "; " : "") + unknown;
}

}  // namespace layercast::cli

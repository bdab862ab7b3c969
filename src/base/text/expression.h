// Regular expressions from a checkpoint's configuration or a host program, used for ignored modules, by weights
// mappers, and for keys of adapters' patterns. They are PCRE2's, whose syntax is nearest to Python's: authors of such
// files have tried their expressions in Python.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace layercast {

// Immutable value; copies share the compiled expression. No expression can hang the program: a search that would take
// more than 100 000 steps throws kInvalidArgument, naming the expression and the text.
class Expression {
 public:
  // Throws kInvalidArgument, naming `pattern`, what is wrong with it and where, if it is no regular expression, is
  // longer than 1024 characters, or is larger than 64 KiB once compiled ("((a{1000}){1000}").
  explicit Expression(const std::string& pattern);

  bool IsIn(std::string_view text) const;
  bool Begins(std::string_view text) const;
  // Replaces every match by `replacement`, in which "$1" is the first group, "$0" the match, and "$$" a dollar. Throws
  // kInvalidArgument if `replacement` is malformed or names a group that the expression does not have.
  std::string Replace(std::string_view text, const std::string& replacement) const;

 private:
  struct Compiled;
  bool Search(std::string_view text, bool from_beginning) const;

  std::shared_ptr<const Compiled> compiled_;  // copies of this value are the other owners
};

}  // namespace layercast

// Regular expressions that a checkpoint's configuration or a host program gives. Ignored modules and weights mappers
// use them. PCRE2's, whose syntax is the nearest to Python's, which the authors of such files have tried theirs with.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace layercast {

// Immutable value; copies share what was compiled. None can hang the program: a search may take 100 000 steps. Where it
// would take more, it throws kInvalidArgument naming the expression and the text.
class Expression {
 public:
  // Throws kInvalidArgument naming `pattern`, what is wrong with it and where: no regular expression, more than 1024
  // characters, or larger than 64 KiB when it is compiled ("((a{1000}){1000}").
  explicit Expression(const std::string& pattern);

  bool IsIn(std::string_view text) const;
  bool Begins(std::string_view text) const;
  // Every match gives way to `replacement`: "$1" is the first group, "$0" the match, "$$" a dollar. Throws
  // kInvalidArgument where that is none, or names a group that the expression does not have.
  std::string Replace(std::string_view text, const std::string& replacement) const;

 private:
  struct Compiled;
  bool Search(std::string_view text, bool from_beginning) const;

  std::shared_ptr<const Compiled> compiled_;  // the other owners are copies of this value
};

}  // namespace layercast

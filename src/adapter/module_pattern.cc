// ModulePattern: which keys are read, and how they match.
#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "layercast/adapter_config.h"
#include "layercast/error.h"
#include "src/base/naming_source.h"
#include "src/base/text/expression.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::string_view kMeaningful = "*+?{}|()[]^$\\";  // characters that make a key more than names and dots

bool IsPrintableAscii(char c) { return c >= ' ' && c <= '~'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

[[noreturn]] void RefusePath(const std::string& key, std::string_view path) {
  throw Error(ErrorCode::kInvalidArgument,
              "module " + Quote(path) + ": expected printable ASCII to match with " + Quote(key));
}

// Walks an expression, and refuses what Python and PCRE2 may read differently.
class SyntaxCheck {
 public:
  explicit SyntaxCheck(std::string_view key) : key_(key) {}

  void Run() {
    while (at_ < key_.size()) {
      const char c = key_[at_];
      if (!IsPrintableAscii(c)) Refuse(1);
      if (c == '\\') {
        Escape();
      } else if (c == '[') {
        Set();
      } else if (c == '(') {
        Group();
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        Quantifier();
      } else {
        ++at_;
      }
    }
  }

 private:
  char Peek(std::size_t ahead) const { return at_ + ahead < key_.size() ? key_[at_ + ahead] : '\0'; }

  void Escape() {
    constexpr std::string_view kLetters = "dDwWsSbB";
    const char next = Peek(1);
    if (!IsPrintableAscii(next)) Refuse(1);
    if (std::isalnum(static_cast<unsigned char>(next)) != 0 && kLetters.find(next) == std::string_view::npos) Refuse(2);
    at_ += 2;
  }

  void Set() {
    at_ += Peek(1) == '^' ? 2 : 1;
    if (Peek(0) == ']') ++at_;  // a first one is an element
    while (at_ < key_.size() && key_[at_] != ']') {
      if (key_[at_] == '[' || !IsPrintableAscii(key_[at_])) Refuse(1);
      if (key_[at_] == '\\') {
        Escape();
      } else {
        ++at_;
      }
    }
    ++at_;
  }

  void Group() {
    if (Peek(1) == '*') Refuse(2);
    if (Peek(1) != '?') {
      ++at_;
      return;
    }
    if (Peek(2) != ':' && Peek(2) != '=' && Peek(2) != '!') Refuse(3);
    at_ += 3;
  }

  void Quantifier() {
    if (key_[at_] == '{') {
      std::size_t ahead = 1;
      while (IsDigit(Peek(ahead))) ++ahead;
      if (ahead == 1) Refuse(1);
      if (Peek(ahead) == ',') ++ahead;
      while (IsDigit(Peek(ahead))) ++ahead;
      if (Peek(ahead) != '}') Refuse(1);
      at_ += ahead;
    }
    ++at_;
    if (Peek(0) == '?') ++at_;  // as few as possible
    if (Peek(0) == '+') Refuse(1);
  }

  [[noreturn]] void Refuse(std::size_t characters) const {
    throw Error(ErrorCode::kUnsupported, "pattern " + Quote(key_) + ": " + Quote(key_.substr(at_, characters)) +
                                             " at character " + std::to_string(at_) +
                                             " is not read: expected names, and . * + ? {m,n} | ( ) [ ] ^ $ \\d");
  }

  std::string_view key_;
  std::size_t at_ = 0;
};

Expression Compile(const std::string& key) {
  SyntaxCheck(key).Run();
  return NamingSource("pattern " + Quote(key), [&] { return Expression(R"((.*\.)?()" + key + ")$"); });
}

// Of a key of names and dots, each of which stands for any character. From the end, so that the first character that
// differs settles it.
bool EndsWith(std::string_view path, const std::string& key) {
  if (!path.empty() && !IsPrintableAscii(path.back())) RefusePath(key, path);
  if (path.size() < key.size()) return false;
  const std::string_view tail = path.substr(path.size() - key.size());
  for (std::size_t i = key.size(); i-- > 0;) {
    if (key[i] == '.' && !IsPrintableAscii(tail[i])) RefusePath(key, path);
    if (key[i] != '.' && key[i] != tail[i]) return false;
  }
  return path.size() == key.size() || path[path.size() - key.size() - 1] == '.';
}

}  // namespace

struct ModulePattern::Compiled {
  explicit Compiled(std::string of) : key(std::move(of)) {
    // Most keys are paths, of which a file may have one for each module: they need no expression.
    if (key.find_first_of(kMeaningful) != std::string::npos || FirstOdd() != key.end()) expression = Compile(key);
  }

  std::string::const_iterator FirstOdd() const { return std::ranges::find_if_not(key, IsPrintableAscii); }

  const std::string key;
  std::optional<Expression> expression;
};

ModulePattern::ModulePattern(std::string key) : compiled_(std::make_shared<const Compiled>(std::move(key))) {}

const std::string& ModulePattern::key() const { return compiled_->key; }

bool ModulePattern::Matches(std::string_view module_path) const {
  if (!compiled_->expression) return EndsWith(module_path, compiled_->key);
  if (!std::ranges::all_of(module_path, IsPrintableAscii)) RefusePath(compiled_->key, module_path);
  return compiled_->expression->Begins(module_path);
}

}  // namespace layercast

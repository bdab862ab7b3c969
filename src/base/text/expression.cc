#include "src/base/text/expression.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::size_t kLongestPattern = 1024;
constexpr std::uint32_t kMostSteps = 100'000;
constexpr std::uint32_t kMostHeapKiB = 16 << 10;

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string Words(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

[[noreturn]] void Refuse(const std::string& pattern, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "regular expression " + Quote(pattern) + ": " + why);
}

Owned<pcre2_code> Compile(const std::string& pattern) {
  if (pattern.size() > kLongestPattern) {
    Refuse(pattern.substr(0, 40) + "...", "expected at most " + std::to_string(kLongestPattern) + " characters, got " +
                                              std::to_string(pattern.size()));
  }
  int code = 0;
  PCRE2_SIZE at = 0;
  Owned<pcre2_code> compiled(pcre2_compile(Units(pattern), pattern.size(),
                                           PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &code, &at, nullptr));
  if (compiled == nullptr) Refuse(pattern, Words(code) + ", at character " + std::to_string(at));
  return compiled;
}

Owned<pcre2_match_context> Limits() {
  Owned<pcre2_match_context> limits(pcre2_match_context_create(nullptr));
  if (limits == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(limits.get(), kMostSteps);
  pcre2_set_heap_limit(limits.get(), kMostHeapKiB);
  return limits;
}

}  // namespace

struct Expression::Compiled {
  explicit Compiled(const std::string& expression) : pattern(expression), code(Compile(expression)), limits(Limits()) {}

  [[noreturn]] void Fail(int error, std::string_view text) const {
    if (error == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    Refuse(pattern, Words(error) + ", on " + Quote(text));
  }

  const std::string pattern;
  const Owned<pcre2_code> code;
  const Owned<pcre2_match_context> limits;
};

Expression::Expression(const std::string& pattern) : compiled_(std::make_shared<const Compiled>(pattern)) {}

bool Expression::IsIn(std::string_view text) const { return Search(text, false); }

bool Expression::Begins(std::string_view text) const { return Search(text, true); }

bool Expression::Search(std::string_view text, bool from_beginning) const {
  const Owned<pcre2_match_data> match(pcre2_match_data_create(1, nullptr));
  if (match == nullptr) throw std::bad_alloc();
  const int found = pcre2_match(compiled_->code.get(), Units(text), text.size(), 0,
                                from_beginning ? PCRE2_ANCHORED : 0U, match.get(), compiled_->limits.get());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) compiled_->Fail(found, text);
  return true;
}

std::string Expression::Replace(std::string_view text, const std::string& replacement) const {
  std::string made(text.size() + replacement.size() + 64, '\0');
  while (true) {
    PCRE2_SIZE size = made.size();
    const int count =
        pcre2_substitute(compiled_->code.get(), Units(text), text.size(), 0,
                         PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_UNSET_EMPTY | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH,
                         nullptr, compiled_->limits.get(), Units(replacement), replacement.size(),
                         reinterpret_cast<PCRE2_UCHAR*>(made.data()), &size);
    if (count == PCRE2_ERROR_NOMEMORY && size > made.size()) {
      made.resize(size);
      continue;
    }
    if (count < 0) compiled_->Fail(count, text);
    made.resize(size);
    return made;
  }
}

}  // namespace layercast

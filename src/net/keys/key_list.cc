#include "src/net/keys/key_list.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/unique_fd.h"
#include "src/net/keys/key_file.h"

namespace layercast {
namespace {

constexpr std::size_t kMostListBytes = std::size_t{4} << 20;

}  // namespace

std::string ReadKeyList(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) throw SystemError(errno, errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument, path);
  ExpectNobodyElseWrites(file.get(), path);
  std::string text(kMostListBytes + 1, '\0');
  std::size_t bytes = 0;
  for (ssize_t more = 1; more > 0 && bytes < text.size(); bytes += static_cast<std::size_t>(more)) {
    more = ::read(file.get(), text.data() + bytes, text.size() - bytes);
    if (more < 0) throw SystemError(errno, ErrorCode::kInvalidArgument, path);
  }
  text.resize(bytes);
  if (text.size() <= kMostListBytes) return text;
  throw Error(ErrorCode::kInvalidArgument,
              path + ": expected a list of at most " + std::to_string(kMostListBytes) + " bytes");
}

std::string_view NextLine(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::string_view NextWord(std::string_view& line) {
  constexpr std::string_view kSpace = " \t\r";
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(kSpace)));
  const std::string_view word = line.substr(0, line.find_first_of(kSpace));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace layercast

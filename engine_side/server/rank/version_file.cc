#include "engine_side/server/rank/version_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/control/json_forms.h"

namespace layercast {

void WriteVersion(int fd, const Version& version) {
  const std::string text = VersionToJson(version).dump();
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    throw SystemError(errno, ErrorCode::kResourceExhausted, "the staged version");
  }
}

Version ReadVersion(int fd) {
  std::string text(static_cast<std::size_t>(::lseek(fd, 0, SEEK_END)), '\0');
  if (::pread(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    throw Error(ErrorCode::kInternal, std::string("the staged version: ") + std::strerror(errno));
  }
  return VersionFromJson(Json::parse(text));
}

}  // namespace layercast

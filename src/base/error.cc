#include "layercast/error.h"

#include <string>

#include "src/base/check.h"

namespace layercast {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kFailedPrecondition: return "failed_precondition";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kDeadlineExceeded: return "deadline_exceeded";
    case ErrorCode::kResourceExhausted: return "resource_exhausted";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kInternal: return "internal";
    case ErrorCode::kPermissionDenied: return "permission_denied";
  }
  return "internal";
}

ErrorCode ErrorCodeNamed(std::string_view name) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kPermissionDenied); ++code) {
    if (ErrorCodeName(static_cast<ErrorCode>(code)) == name) return static_cast<ErrorCode>(code);
  }
  return ErrorCode::kInternal;
}

void ThrowCheckFailure(const char* condition, const char* file, int line) {
  throw Error(ErrorCode::kInternal, "bug in Layercast: check '" + std::string(condition) + "' failed at " + file + ":" +
                                        std::to_string(line));
}

}  // namespace layercast

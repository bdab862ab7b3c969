#include "engine_side/server/http/http_errors.h"

#include <string>

namespace layercast {

int HttpStatusOf(ErrorCode code, bool generates) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported: return 400;
    case ErrorCode::kPermissionDenied: return 403;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kFailedPrecondition: return generates ? 409 : 503;
    case ErrorCode::kResourceExhausted: return 429;
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled: return 503;
    case ErrorCode::kDeadlineExceeded: return 504;
    case ErrorCode::kCorrupt:
    case ErrorCode::kInternal: return 500;
  }
  return 500;
}

HttpAnswer HttpAnswerOf(const Error& error, bool generates) {
  return ErrorAnswer(HttpStatusOf(error.code(), generates), ErrorCodeName(error.code()), error.what());
}

}  // namespace layercast

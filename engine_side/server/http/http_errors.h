// An engine's errors as HTTP has them.
#pragma once

#include "layercast/error.h"
#include "src/net/http/http_answer.h"

namespace layercast {

// `generates`: whether the engine can generate now; if not, a precondition that failed is one that comes about by
// itself, or by others.
int HttpStatusOf(ErrorCode code, bool generates);
HttpAnswer HttpAnswerOf(const Error& error, bool generates);

}  // namespace layercast

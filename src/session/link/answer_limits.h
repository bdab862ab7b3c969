// The limits of what a publisher, or a relay, may say. Whoever connects to one may be talking to anybody.
#pragma once

#include <string>

#include "src/wire/frames.h"

namespace layercast {

// Throws what CheckName throws, as kCorrupt, unless every name and address in the message is one: they appear in logs,
// in errors and in what commands print.
void CheckNames(const wire::Message& message);

// The words of a refusal, fit for a message: escaped, and shortened past what a refusal ever needs.
std::string WordsOf(const wire::Refused& refused);

}  // namespace layercast

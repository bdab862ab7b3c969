// What a publisher does for one receiver at most: a subscription is a few bytes on the wire, and an order to read a
// version, to digest it and to look for its magnitudes. Used by the offer desk.
#pragma once

#include <span>
#include <string>

#include "src/tensor/axis_amax.h"
#include "src/tensor/manifest.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"

namespace layercast {

// Throws kInvalidArgument, with the name in quotes, unless all that a receiver calls itself and others by can be
// printed as it is, and is no longer than a name: it stands in logs, in errors, and in what the publisher tells others.
void CheckNames(const wire::Hello& hello);
void CheckRelayName(const std::string& endpoint);

// Regions lie inside their tensors (CheckSchedule). A tensor that goes to several places is asked for in each. Throws
// kResourceExhausted, with the most that is taken and what was asked for, where a schedule reads the version over and
// over.
void CheckReadings(const Schedule& schedule, const Manifest& manifest);

// Throws kInvalidArgument, naming the tensor, for one that is not there, for axes that do not fit it, and for a tensor
// that is asked for twice; kResourceExhausted where the answers together would be larger than the version.
void CheckAmaxRequests(std::span<const AmaxRequest> requests, const Manifest& manifest);

}  // namespace layercast

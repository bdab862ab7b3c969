// Limits on what a receiver may ask of a publisher. A subscription is a few bytes on the wire, but it makes the
// publisher read a version, digest it and compute magnitudes. Used by the offer desk.
#pragma once

#include <span>
#include <string>

#include "src/tensor/axis_amax.h"
#include "src/tensor/manifest.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"

namespace layercast {

// Throws kInvalidArgument, quoting the name, unless every name in the hello is printable and no longer than a name may
// be: names appear in logs, in errors, and in what the publisher tells others.
void CheckNames(const wire::Hello& hello);
void CheckRelayName(const std::string& endpoint);

// Throws kResourceExhausted, with the limit and what was asked for, if a schedule reads the version over and over. Some
// repetition is fine: a tensor that goes to several places is asked for once for each. The schedule must have passed
// CheckSchedule.
void CheckReadings(const Schedule& schedule, const Manifest& manifest);

// Throws kInvalidArgument, naming the tensor, if it is not in the manifest, if the axes do not fit it, or if it is
// asked for twice; kResourceExhausted if the answers together would be larger than the version.
void CheckAmaxRequests(std::span<const AmaxRequest> requests, const Manifest& manifest);

}  // namespace layercast

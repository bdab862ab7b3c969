// Limits on what a receiver may ask of a publisher. A subscription is a few bytes on the wire, but it makes the
// publisher read a version, digest it and compute magnitudes. Used by the desk of versions.
#pragma once

#include <cstdint>
#include <span>

#include "src/tensor/kernels/axis_amax.h"
#include "src/tensor/manifest/manifest.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"

namespace layercast {

// Throws what CheckName throws of any name in the hello.
void CheckNames(const wire::Hello& hello);

// Throws kInvalidArgument unless every region lies inside a tensor of the manifest, no chunk is empty and, for a
// stream, no chunk holds two tensors.
void CheckSchedule(const Schedule& schedule, const Manifest& manifest, bool stream);

// Throws kResourceExhausted, with the limit and what was asked for, if a schedule reads the version over and over. Some
// repetition is fine: a tensor that goes to several places is asked for once for each. The schedule must have passed
// CheckSchedule.
void CheckReadings(const Schedule& schedule, const Manifest& manifest);

// The magnitudes that one chunk needs have no more bytes, nor have those that one message carries.
inline constexpr std::uint64_t kMostAmaxBytes = 64U << 20;
// The bytes of the answer to a request that has passed CheckAmaxRequests.
std::uint64_t AmaxBytes(const AmaxRequest& request, const Manifest& manifest);

// Throws kInvalidArgument, naming the tensor, if it is not in the manifest, if the axes do not fit it, or if it is
// asked for twice; kResourceExhausted if one chunk needs more bytes of magnitudes than kMostAmaxBytes, or all answers
// together are larger than that and than 1/64 of the version. A row of a weight has hundreds of bytes or more, and its
// magnitude has four.
void CheckAmaxRequests(std::span<const AmaxRequest> requests, const Manifest& manifest);

}  // namespace layercast

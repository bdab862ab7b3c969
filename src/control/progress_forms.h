// How far a reload has come, as ranks, engines and controllers say it to each other, and put together.
#pragma once

#include <cstddef>
#include <span>

#include "layercast/progress.h"
#include "src/control/json_forms.h"

namespace layercast {

// {"version", "stage", "bytes", "bytes_total", "layers", "layers_total"}. The version is null while it is not known.
Json ProgressToJson(const ReloadProgress& progress);
// Throws Json::exception, naming the field, if one is missing or has the wrong type. The version may be missing.
ReloadProgress ProgressFromJson(const Json& json);

// The rank that has the least share of its bytes; the first of several.
std::size_t Slowest(std::span<const ReloadProgress> ranks);
// All ranks as one. Totals are not known before those of every rank are, so that they do not grow.
ReloadProgress ProgressOfAll(std::span<const ReloadProgress> ranks);

// What an engine's status says of the reload under way: the fields of ProgressOfAll(ranks), and "ranks", each with its
// number and without the version.
Json EngineProgressToJson(std::span<const ReloadProgress> ranks);
// Reads it from a status, in which it is there (not null). Throws as ProgressFromJson does.
EngineProgress EngineProgressFromStatus(const Json& status);

}  // namespace layercast

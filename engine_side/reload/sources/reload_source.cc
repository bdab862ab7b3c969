// What a host program hands to a receiver. The functions that make one are beside their sources (version_source.h).

#include "layercast/reload_source.h"

#include <utility>

#include "engine_side/reload/sources/version_source.h"

namespace layercast {

ReloadSource::ReloadSource() : ReloadSource(FromOrigin()) {}
ReloadSource::ReloadSource(std::unique_ptr<VersionSource> given) : from(std::move(given)) {}
ReloadSource::ReloadSource(ReloadSource&&) noexcept = default;
ReloadSource& ReloadSource::operator=(ReloadSource&&) noexcept = default;
ReloadSource::~ReloadSource() = default;

}  // namespace layercast

// The functions by which a host program says where new weights come from.

#include "layercast/reload_source.h"

#include <utility>

namespace layercast {
namespace {

ReloadSource Make(ReloadSource::Kind kind) {
  ReloadSource source;
  source.kind = kind;
  return source;
}

}  // namespace

ReloadSource FromOrigin() { return Make(ReloadSource::Kind::kOrigin); }

ReloadSource FromPath(std::string path, bool is_checkpoint_format) {
  ReloadSource source = FromCheckpoint({.path = std::move(path)});
  source.is_checkpoint_format = is_checkpoint_format;
  return source;
}

ReloadSource FromCheckpoint(CheckpointSource checkpoint) {
  ReloadSource source = Make(ReloadSource::Kind::kPath);
  source.checkpoint = std::move(checkpoint);
  return source;
}

ReloadSource FromPublisher(std::string endpoint, std::string lineage, std::optional<std::uint64_t> step) {
  return FromPublishers({std::move(endpoint)}, std::move(lineage), step);
}

ReloadSource FromPublishers(std::vector<std::string> endpoints, std::string lineage,
                            std::optional<std::uint64_t> step) {
  ReloadSource source = Make(ReloadSource::Kind::kPublisher);
  source.endpoints = std::move(endpoints);
  source.lineage = std::move(lineage);
  source.step = step;
  return source;
}

ReloadSource FromEngineRank(std::string endpoint, Version version, Digest served_digest) {
  ReloadSource source = Make(ReloadSource::Kind::kEngine);
  source.endpoints = {std::move(endpoint)};
  source.version = std::move(version);
  source.served_digest = served_digest;
  source.is_checkpoint_format = false;
  return source;
}

ReloadSource FromDummy(std::uint64_t seed) {
  ReloadSource source = Make(ReloadSource::Kind::kDummy);
  source.seed = seed;
  return source;
}

ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator, std::vector<TensorSpec> specs,
                          bool is_checkpoint_format) {
  ReloadSource source = Make(ReloadSource::Kind::kIterator);
  source.lineage = "iterator";
  source.iterator = std::move(iterator);
  source.specs = std::move(specs);
  source.is_checkpoint_format = is_checkpoint_format;
  return source;
}

}  // namespace layercast
